# work: encodes a test picture with two threads
# packages: ffmpeg
prepare() { :; }
drive() { ffmpeg -nostdin -loglevel error -f lavfi -i testsrc=duration=$((2 * $2)):size=320x240:rate=25 -threads 2 -c:v mpeg4 out.mp4; }
