package terminal

import "io"

// Output keeps the first error of a writer, so that commands need not look at the errors of
// fmt.Fprint. It is not safe for concurrent use.
type Output struct {
	io.Writer
	Err error
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if o.Err == nil {
		o.Err = err
	}
	return n, err
}
