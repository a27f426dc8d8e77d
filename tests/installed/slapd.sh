# driven: a new database in LMDB, an entry added and found
# packages: slapd ldap-utils
mkdir db
cat > c <<Y
include /etc/ldap/schema/core.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile $PWD/pid
database mdb
directory $PWD/db
suffix "dc=ex"
rootdn "cn=a,dc=ex"
rootpw x
Y
/usr/sbin/slapd -d 0 -h ldap://127.0.0.1:$1 -f $PWD/c > log 2>&1 &
server=$!
printf 'dn: dc=ex\nobjectClass: dcObject\nobjectClass: organization\ndc: ex\no: ex\n\ndn: cn=b,dc=ex\nobjectClass: person\ncn: b\nsn: s\n' > entries
until ldapwhoami -x -H ldap://127.0.0.1:$1 > out 2>&1; do sleep 0.1; done
ldapadd -x -H ldap://127.0.0.1:$1 -D cn=a,dc=ex -w x -f entries > out
ldapsearch -x -LLL -H ldap://127.0.0.1:$1 -b dc=ex sn=s cn > out; grep -q 'cn: b' out
kill $server; wait $server || true
