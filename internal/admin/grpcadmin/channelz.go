package grpcadmin

import (
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

// channelzOn is grpc's switch for channelz, which is not public. The import of grpc's channelz
// service sets it to 1, and nothing in grpc sets it back. A test notices if a later grpc has no such
// variable.
//
//go:linkname channelzOn google.golang.org/grpc/internal/channelz.curState
var channelzOn int32

// CountForChannelz says whether grpc keeps the state of connections that channelz shows. Their
// counters take 3 % of the CPU that a change costs for each client. Connections, servers and channels
// that were made before keep their state. It holds for the whole process.
func CountForChannelz(on bool) {
	state := int32(0)
	if on {
		state = 1
	}
	atomic.StoreInt32(&channelzOn, state)
}
