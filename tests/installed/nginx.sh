# driven: two workers, five requests
# packages: nginx-light curl
mkdir html; echo hello > html/a
cat > c <<X
daemon off; worker_processes 2; pid $PWD/pid; error_log $PWD/error.log;
events {}
http { access_log $PWD/access.log; server { listen 127.0.0.1:$1; root $PWD/html; } client_body_temp_path $PWD/t1; proxy_temp_path $PWD/t2; fastcgi_temp_path $PWD/t3; uwsgi_temp_path $PWD/t4; scgi_temp_path $PWD/t5; }
X
chmod -R a+rX .
/usr/sbin/nginx -c $PWD/c &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > out; do sleep 0.05; done; grep -q hello out; done
kill -QUIT $server; wait $server
