# driven: a compiled loop, garbage, three threads, a timeout
# packages: sbcl
cat > a.lisp <<'X'
(let ((l nil)) (dotimes (i 200000) (push (make-string 100) l) (when (> (length l) 20) (setf l nil))) (gc :full t))
(let ((a (loop for i below 3 collect (let ((i i)) (sb-thread:make-thread (lambda () (loop repeat 1000 do (make-array 100)) i))))))
  (assert (equal (mapcar (function sb-thread:join-thread) a) '(0 1 2))))
(assert (eq (handler-case (sb-ext:with-timeout 0.1 (loop)) (sb-ext:timeout () :late)) :late))
X
sbcl --script a.lisp
