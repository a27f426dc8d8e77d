# driven: encodes a second of a test picture with two threads
# packages: ffmpeg
# tried: rdtsc, 131,072 times at its start, no longer stops while a checkpoint is wanted: 872 ms became 175 with kept copies; 230 libraries, 271 MiB, are copied
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc=duration=1:size=160x120:rate=10 -threads 2 -c:v mpeg4 out.mp4 && test -s out.mp4
