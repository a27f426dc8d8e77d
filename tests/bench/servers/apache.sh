# work: the event MPM, ab with 8 clients
# packages: apache2 apache2-utils
prepare() {
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
}
drive() {
  apache2 -f $PWD/c -DFOREGROUND &
  until ab -q -n 1 http://127.0.0.1:$1/a; do sleep 0.05; done
  ab -q -n $((1000 * $2)) -c 8 http://127.0.0.1:$1/a
  kill $!; wait
}
