# driven: threads, a queue, fork
# packages: ruby
ruby -e 'q=Queue.new; t=3.times.map{|i| Thread.new{100.times{|k| q<<k}}}; t.each(&:join); pid=fork{exit 7}; Process.wait pid; exit 1 if q.size!=300 || $?.exitstatus!=7'
