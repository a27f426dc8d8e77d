# driven: two tests with a thread and a child
# packages: python3-pytest
printf 'import threading,subprocess\ndef test_a(tmp_path):\n  (tmp_path/"x").write_text("1")\n  assert subprocess.run(["true"]).returncode==0\ndef test_b():\n  t=threading.Thread(target=lambda:None); t.start(); t.join()\n' > test_a.py
/usr/bin/python3 -m pytest -q > log
