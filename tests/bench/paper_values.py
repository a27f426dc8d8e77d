"""What the papers say of their results: each number with where it stands. Read off no figure: where the text gives none, there is none here.

N: Netzer, Subramanian, Xu. Z: Zambonelli, Netzer. M: Thoai, Volkert (MRT). D: Elwakil, Yang (DR-MCAPI)."""

# N, section 6: runs of 48 to 1358 s on 16 nodes (router: 8). Z, table 1: seconds, and megabytes sent, of the same programs.
RUNS = {"det": (48.3, 43.1), "fft": (417.0, 243.2), "mesh": (199.4, 19.0), "tester": (144.0, 35.2), "router": (1358.0, 67.9)}

# N, section 6.1 and figure 4: at C = 2T less than 5 % are logged; router less than 0.1 % where the curves have become flat; C = T: 15 to 35 %.
LOGGED_AT_2T_PERCENT = 5
LOGGED_ROUTER_PERCENT = 0.1
LOGGED_AT_T_PERCENT = (15, 35)

# N, section 6.2 and figure 5: average and longest replay, in C.
REPLAY_AVERAGE_C, REPLAY_MAX_C = 0.8, 2

# N, section 6.3 and figure 6: at most so many percentage points more are logged with skew, by T in % of the run, with S = T.
SKEW_MORE_PERCENT = {10: 5, 15: 10, 20: 15}

# Z, section 4.1, figures 2 and 3: by bound, in intervals per process (16 and 32 of 16 processes).
SET_LOGGED_PERCENT = {1: (25, 35), 2: (10, 15)}
SET_AVERAGE, SET_MAX = {2: 1.0}, {2: 2.0}
# Z, section 4.2, figure 4: both log about 15 % with a bound of 32; figure 5: a bound of 40 has domino's maximum.
DOMINO_LOGGED_PERCENT, DOMINO_MAX = 15, 2.5

# M, table 7.1, by program and processes: execution time, checkpoint interval and coordination time of each process in seconds, messages, messages
# logged, percent logged.
MRT = {
    ("exchange", 4): (19, 2, 0.002, 120000, 5507, 4.59), ("exchange", 8): (47, 2, 0.010, 560000, 15190, 2.71),
    ("exchange", 16): (77, 2, 0.559, 1200000, 27133, 2.26),
    ("poisson", 4): (23, 2, 0.004, 149866, 3760, 2.51), ("poisson", 8): (30, 2, 0.009, 369084, 6859, 1.86),
    ("poisson", 16): (59, 2, 0.101, 864078, 13356, 1.55),
    ("fft", 4): (18, 2, 0.027, 270024, 6373, 2.36), ("fft", 8): (41, 2, 0.077, 630056, 9968, 1.58), ("fft", 16): (95, 2, 0.884, 1350120, 18458, 1.37),
    ("jacobi", 4): (1802, 2, 8.380, 49924, 2411, 4.83), ("jacobi", 8): (510, 2, 1.281, 73848, 3032, 4.11),
    ("jacobi", 16): (268, 2, 2.120, 153856, 3442, 2.24),
}

# D, table 6: bytes of a record. D-Replay keeps the data beside 5 bytes.
RECORD_BYTES = {"D": lambda size: 5 + size, "S": lambda size: 10, "R": lambda size: 13}
# D, section 4: bytes of a message.
MESSAGE_BYTES = {"bt": 50, "cg": 50, "tn": 50, "bully": 4}
# D, section 4.3, figures 22 to 24: factors of the run time, recording and replaying; a replay with data is said to be faster than the run.
RUN_TIME = {
    "D": {"bt": (1.8, None), "cg": (1.5, None), "tn": (1.5, None), "bully": (1.9, None)},
    "S": {"bt": (2.6, 5.6), "cg": (3.3, 4.6), "tn": (4.2, 5.4), "bully": (2.0, 3.5)},
    "R": {"bt": (1.5, 2.3), "cg": (1.3, 1.9), "tn": (1.3, 1.8), "bully": (1.4, 1.6)},
}

# D, section 4.4, figures 25 to 27: factors of the heap, recording and replaying.
MEMORY = {
    "D": {"bt": (2.6, 1.3), "cg": (8.0, 2.7), "tn": (7.5, 2.3), "bully": (6.0, 2.7)},
    "S": {"bt": (2.1, 3.0), "cg": (2.8, 2.8), "tn": (2.6, 2.6), "bully": (2.0, 2.6)},
    "R": {"bt": (2.7, 2.7), "cg": (2.9, 3.1), "tn": (3.0, 3.2), "bully": (2.8, 2.9)},
}

# D, table 9, of D, S and R: what can be measured.
TABLE_9 = {
    "Trace size": ("worst", "good", "best"),
    "Recording time overhead": ("good", "worst", "best"),
    "Replay time overhead": ("best", "worst", "good"),
    "Recording memory overhead": ("worst", "good", "good"),
    "Replay memory overhead": ("best", "good", "worst"),
}
