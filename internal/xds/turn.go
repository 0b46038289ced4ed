package xds

import (
	"context"
	"runtime"

	"xdsrelay/internal/turns"
)

// largeNode is how large a node is, in bytes, that is decoded for clients as one of a
// few. Decoded, a node of a megabyte of small values is fifty. Those that are smaller
// are decoded before their goroutine has to make way for another.
const largeNode = 64 << 10

// largeAtATime is for half as many as there are cores: others are to find one.
var largeAtATime = max(1, runtime.GOMAXPROCS(0)/2)

// decoding rest, so that no more than a third of these cores decodes.
var decoding = turns.New(largeAtATime, 2)

// coming are the streams and polls whose large node is held against rules. What waits there may
// give up, so that who opens streams and ends them has nobody wait for what is over;
// there are more than decode, so that those are never without work.
var coming = turns.New(2*largeAtATime, 0)

// TakesTurns reports whether a node of so many bytes has to wait for its turn.
func TakesTurns(bytes int) bool { return bytes > largeNode }

// Turn waits until it is a node's turn, of so many bytes, to be held against rules, and
// returns what ends that; nil: ctx has ended before, or cut is closed.
func Turn(ctx context.Context, cut <-chan struct{}, bytes int) (leave func()) {
	if !TakesTurns(bytes) {
		return func() {}
	}
	leave, _ = coming.Take(ctx, cut, bytes)
	return leave
}
