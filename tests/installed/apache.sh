# driven: the event MPM, five requests
# packages: apache2 curl
mkdir html; echo hello > html/a
cat > c <<X
ServerRoot /etc/apache2
ServerName localhost
Listen 127.0.0.1:$1
PidFile $PWD/pid
ErrorLog $PWD/error.log
DocumentRoot $PWD/html
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
<Directory $PWD/html>
Require all granted
</Directory>
X
chmod -R a+rX .
apache2 -f $PWD/c -DFOREGROUND &
server=$!
for i in 1 2 3 4 5; do until curl -sf http://127.0.0.1:$1/a > got; do sleep 0.05; done; grep -q hello got; done
kill $server; wait $server || true
