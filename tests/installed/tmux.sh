# driven: a session, keys, its screen
# packages: tmux
tmux -S ./socket -f /dev/null new-session -d -s s -x 80 -y 24 sh
tmux -S ./socket send-keys -t s 'echo a$((40+2))b' Enter
until tmux -S ./socket capture-pane -p -t s | grep -q a42b; do sleep 0.05; done
tmux -S ./socket kill-server
