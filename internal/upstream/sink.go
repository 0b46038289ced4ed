package upstream

import (
	"context"
	"time"

	"xdsrelay/internal/xds"
)

// Sink takes what a stream brings; the consumer's group implements it.
type Sink interface {
	// Held is the newest snapshot of typ, with every Update of this stream that
	// has returned applied; nil if none. Of its two parts (P50) the stream reads
	// the one that it asks for. Any goroutine.
	Held(typ xds.TypeURL) *xds.Snapshot
	// Update hands an update over and waits until it is applied; it reports
	// whether that made another snapshot. Calls never overlap. An error while ctx
	// is alive (the group is over) ends the stream's Run.
	Update(ctx context.Context, u xds.Update) (changed bool, err error)
	// Status tells of the connection; it never blocks.
	Status(Status)
}

// Status of a key's upstream stream.
type Status struct {
	// Connected: a stream is open; the transport accepted it.
	Connected bool
	// Origin is the name of the origin that serves, or was tried.
	Origin string
	// Err is why the last attempt or stream ended; nil while connected, and when
	// the stream was closed because nothing is wanted any more.
	Err error
	// Failed: the last attempt failed (P53: the origin is unreachable). False
	// when a stream ended that had a response: it is opened again within a
	// second.
	Failed bool
	// Told: Err is in the log already, as why the origin is away.
	Told bool
	// Spoken: something came on the open stream, be it of no use. Told with the first of
	// each stream that was silent, or if it brings no Update.
	Spoken bool
	// SilentSince is when the stream was opened, once it has been open for
	// first_answer_timeout without any response; else zero.
	SilentSince time.Time
	// Attempts that failed since the last response.
	Attempts int
}
