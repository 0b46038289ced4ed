package fanout

import (
	"testing"
	"unsafe"
)

// With thousands of streams, a cache line of a stream is read from memory, which takes as long as
// scanning an ACK. So what responses and ACKs need of a stream and of a type is in few lines.
func TestHotFieldsShareCacheLines(t *testing.T) {
	const line = 64
	st, ty := new(stream), new(streamType)
	of := func(p unsafe.Pointer) uintptr { return uintptr(p) / line }
	for name, c := range map[string]struct {
		first, last unsafe.Pointer
		lines       uintptr
	}{
		"stream, run state and message": {unsafe.Pointer(st), unsafe.Pointer(&st.before), 1},
		"stream, worker":                {unsafe.Pointer(st), unsafe.Pointer(&st.variant), 3},
		"stream, worker and receiver":   {unsafe.Pointer(st), unsafe.Pointer(&st.names), 4},
		"type, without its session":     {unsafe.Pointer(ty), unsafe.Pointer(&ty.metrics), 1},
		"type, session and tracker":     {unsafe.Pointer(ty), unsafe.Add(unsafe.Pointer(&ty.track), unsafe.Sizeof(ty.track)/2), 9},
	} {
		if n := of(c.last) - of(c.first) + 1; n > c.lines {
			t.Errorf("%s: %d cache lines, want %d", name, n, c.lines)
		}
	}
	for range 100 {
		if st, ty := new(stream), new(streamType); uintptr(unsafe.Pointer(st))%line != 0 || uintptr(unsafe.Pointer(&ty.Session))%line != 0 {
			t.Fatalf("a stream of %d bytes is at %p, and the session of a type of %d bytes at %p", unsafe.Sizeof(*st), st, unsafe.Sizeof(*ty), &ty.Session)
		}
	}
}
