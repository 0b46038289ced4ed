package upstream

import (
	"context"
	"errors"
	"time"
)

// origin is where streams are served from. Constructors of origins start
// nothing and check what can be checked without a network.
type origin interface {
	// upkeep runs as long as Client.Run: watching files, closing idle
	// connections. It returns when all that it started has ended; nil if ctx
	// ended it.
	upkeep(ctx context.Context) error
	// attach makes a line's session with this origin. It starts nothing, does
	// no I/O and cannot fail; upkeep may not run yet.
	attach(l *line) session
	// connections is how many there are, for admin.
	connections() int
	// faults are what is wrong with what it serves, for admin.
	faults() []FileFault
}

// session is one line: a Stream at one origin, for as long as it stays there,
// through several attempts. Its methods are called one after the other.
type session interface {
	// serve is one attempt: it serves the stream's interest until it cannot any
	// more or ctx ends, and returns why; never nil. When it returns, all
	// goroutines that it started have ended. It
	//   - calls s.opened once the origin is reached, and s.answered at every
	//     response: both for P54 and the Status;
	//   - reads s.take for the interest, at the start and after each receive
	//     from s.changed;
	//   - reads what is held by s.held, and hands updates over by s.apply, whose
	//     error it returns as it is.
	// Returning errReopen means: no failure, serve again at once.
	serve(ctx context.Context) error
	// rest waits before the next attempt: for d, or less if there is reason to
	// believe that it would succeed now, or until ctx ends.
	rest(ctx context.Context, d time.Duration)
	// close gives back what the session holds, between attempts.
	close()
}

// errReopen ends a stream that could go on but cannot carry the new interest.
var errReopen = errors.New("stream to be opened anew for another interest")

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
