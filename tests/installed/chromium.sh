# driven: a screenshot, headless
# packages: chromium
# tried: with kept copies 2.4 s instead of 3.3; its processes share memory and become one unit, whose threads have one processor: 1.4 s of CPU time, and 0.4 s for images where they join
echo '<html><body><h1>hello</h1><script>document.title=[1,2,3].map(x=>x*x).join()</script></body></html>' > a.html
chromium --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/u --screenshot=$PWD/a.png --window-size=320,240 file://$PWD/a.html > log 2>&1
test -s a.png
