package buffers

import "google.golang.org/grpc/mem"

// largest bounds the messages with a pooled buffer, as a power of two of bytes. Without the bound
// the pool would keep the largest buffer that it ever made.
const largest = 20

// pool has a tier for each power of two. grpc's own pool has none between 32 KB and 1 MB, and
// clears 1 MB for a message of 100 KB.
var pool = func() mem.BufferPool {
	p, err := mem.NewBinaryTieredBufferPool(8, 10, 12, 13, 14, 15, 16, 17, 18, 19, largest)
	if err != nil {
		panic(err) // impossible with the numbers above
	}
	return p
}()

// One returns a message in one buffer, which the caller has to free. It copies only a message with
// several buffers.
func One(message mem.BufferSlice) mem.Buffer {
	if len(message) > 1 && message.Len() > 1<<largest {
		return mem.SliceBuffer(message.Materialize())
	}
	return message.MaterializeToBuffer(pool)
}
