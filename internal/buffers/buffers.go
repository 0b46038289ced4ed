package buffers

import "google.golang.org/grpc/mem"

// largest is the largest message whose buffer is used again, as a power of two of
// bytes. Of what is larger a pool would keep the largest that ever came.
const largest = 20

// pool has a tier for each power of two. That of grpc has none between 32 KB and
// 1 MB, and clears 1 MB for a message of 100 KB.
var pool = func() mem.BufferPool {
	p, err := mem.NewBinaryTieredBufferPool(8, 10, 12, 13, 14, 15, 16, 17, 18, 19, largest)
	if err != nil {
		panic(err) // of the numbers above
	}
	return p
}()

// One returns a message in one piece, which the caller frees. A message that is in
// one piece already is not copied.
func One(message mem.BufferSlice) mem.Buffer {
	if len(message) > 1 && message.Len() > 1<<largest {
		return mem.SliceBuffer(message.Materialize())
	}
	return message.MaterializeToBuffer(pool)
}
