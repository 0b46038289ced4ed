package buffers

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
)

// A message of any size is in one buffer. The buffer of a large one is not pooled, and that of a
// small one is not much larger.
func TestOne(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 40_000, 100_000, 1 << largest, 1<<largest + 1, 3 << largest} {
		want := bytes.Repeat([]byte("x"), size)
		b := One(mem.BufferSlice{mem.SliceBuffer(want[:size/3]), mem.SliceBuffer(want[size/3:])})
		got := b.ReadOnlyData()
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: others came out", size)
		}
		if size > 0 && cap(got) > max(2*size, 256) {
			t.Errorf("%d bytes take %d", size, cap(got))
		}
		if _, own := b.(mem.SliceBuffer); size > 1<<largest && !own {
			t.Errorf("%d bytes: kept for others", size)
		}
		b.Free()
	}
}

// A large message leaves no buffer in the pool.
func TestLargeIsNotKept(t *testing.T) {
	piece := make([]byte, 2<<largest)
	One(mem.BufferSlice{mem.SliceBuffer(piece), mem.SliceBuffer(piece)}).Free()
	b := One(mem.BufferSlice{mem.SliceBuffer(piece[:1<<largest]), mem.SliceBuffer(piece[:10])})
	defer b.Free()
	if got := cap(b.ReadOnlyData()); got > 2<<largest {
		t.Errorf("a message of %d bytes is in %d", 1<<largest+10, got)
	}
}
