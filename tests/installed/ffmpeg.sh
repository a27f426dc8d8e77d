# driven: encodes a second of a test picture with two threads
# packages: ffmpeg
ffmpeg -nostdin -loglevel error -f lavfi -i testsrc=duration=1:size=160x120:rate=10 -threads 2 -c:v mpeg4 out.mp4 && test -s out.mp4
