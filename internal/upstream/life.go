package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// That an origin leaves a name unanswered says that there is none (P57) only if it is
// alive. One that hangs after it spoke looks the same, for as long as it takes
// keepalive to find out, and for ever if its program hangs and its transport does not: clients
// would be told that what they have just asked for does not exist. So before a name is
// taken for absent the origin has to have shown life a moment ago: by a response, or else by the
// answer to a health check, of which any that is its own will do, also that it knows of no such
// method. What may be a proxy's, that has no path to it or lets none through, will do until one
// was its own: of an origin that never answers such checks nobody knows better.
//
// An origin may be many servers, and there may be many connections to each. Just one may be
// dead, so what counts is what came over the transport that the stream is on.

// lifeLeast is how long a sign of life is good for at least.
const lifeLeast = 300 * time.Millisecond

// life is what is known of whether there is life at the other end of a transport. Any goroutine.
type life struct {
	turn chan struct{} // one asks at a time

	made  time.Time
	read  atomic.Int64 // when anything was read of the transport, in nanoseconds since made; 0: nothing was
	bytes atomic.Int64 // that were read of it

	mu    sync.Mutex
	shown time.Time // when it showed life last
	from  time.Time // since when it has, again and again; what was before, it may have hung
	asked time.Time // when it was asked last and showed none
	lost  time.Time // when that was known
	err   error     // why; nil: it showed life since
	again time.Time // when it showed life, having shown none when asked, or not at once
}

func newLife() *life { return &life{turn: make(chan struct{}, 1), made: time.Now()} }

// transported is what gRPC knows of a transport since its handshake, with its life.
type transported struct {
	credentials.AuthInfo
	life *life
}

// GetCommonAuthInfo is for gRPC, which looks for it.
func (t *transported) GetCommonAuthInfo() credentials.CommonAuthInfo {
	if of, ok := t.AuthInfo.(interface {
		GetCommonAuthInfo() credentials.CommonAuthInfo
	}); ok {
		return of.GetCommonAuthInfo()
	}
	return credentials.CommonAuthInfo{}
}

// GetSecurityValue is for channelz, which shows it; nil: there is none.
func (t *transported) GetSecurityValue() credentials.ChannelzSecurityValue {
	if of, ok := t.AuthInfo.(credentials.ChannelzSecurityInfo); ok {
		return of.GetSecurityValue()
	}
	return nil
}

// lifeOf is that of the transport which a stream is on. gRPC does not move the stream to
// another since, as it may one that was never answered.
func lifeOf(cs grpc.ClientStream) *life {
	if p, ok := peer.FromContext(cs.Context()); ok {
		if t, ok := p.AuthInfo.(*transported); ok {
			return t.life
		}
	}
	return newLife()
}

// show says that it showed life at a time, which may be a while ago.
func (l *life) show(at time.Time, absentAfter time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !at.After(l.shown) {
		return
	}
	if l.shown.IsZero() || at.Sub(l.shown) > livelyFor(absentAfter) {
		l.from = at
	}
	l.shown = at
	if !at.After(l.asked) {
		return
	}
	if l.dead() || errors.Is(l.err, errNobody) {
		l.again = at
	}
	l.err = nil
}

// dead: it was asked in vain since it showed life. The lock is the caller's.
func (l *life) dead() bool { return l.err != nil && !errors.Is(l.err, errUnasked) }

// lose says that it was asked, and showed no life since; false: it did.
func (l *life) lose(since, now time.Time, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.After(since) {
		return false
	}
	l.lost = now
	if !l.dead() || !errors.Is(err, errUnasked) { // or it is as dead as before
		l.asked, l.err = since, err
	}
	return true
}

// hung says that it did until now.
func (l *life) hung(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = now
}

// reads says that so many bytes were read of the transport. The wall clock, which may be set,
// has no part in it.
func (l *life) reads(n int) {
	l.read.Store(max(1, int64(time.Since(l.made))))
	l.bytes.Add(int64(n))
}

// heardOf reports whether anything was read of the transport after a time, be it only the answer
// to a ping of keepalive.
func (l *life) heardOf(t time.Time) bool {
	at := l.read.Load()
	return at > 0 && at > int64(t.Sub(l.made))
}

// since reports whether it showed life after a time; or else why not, if it was asked
// after that.
func (l *life) since(t time.Time) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.After(t) {
		return true, nil
	}
	if l.lost.After(t) {
		return false, l.err
	}
	return false, nil
}

// grace is until when an origin that lives again has for what it was asked before.
func (l *life) grace(absentAfter time.Duration) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.again.IsZero() {
		return time.Time{}
	}
	return l.again.Add(absentAfter)
}

// livelyFor is how long a sign of life is good for.
func livelyFor(absentAfter time.Duration) time.Duration { return max(lifeLeast, absentAfter/3) }

// lively is until when what it showed last is a sign of life, which is so for a third of
// absentAfter, unless it was asked in vain since; and since when it has shown life.
func (l *life) lively(absentAfter time.Duration) (until, from time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead() {
		return time.Time{}, l.from
	}
	return l.shown.Add(livelyFor(absentAfter)), l.from
}

// ofTransport is the life of what the stream is on. The loop's.
func (e *exchange) ofTransport() *life {
	if e.life == nil {
		e.life = lifeOf(e.cs)
	}
	return e.life
}

// revive asks the origin for a sign of life over the transport that l is of, and returns why there
// is none. Who asks while others do has what comes of that. since is from when on
// anything read of the transport will do, if others live and it cannot be asked.
func (e *exchange) revive(ctx context.Context, l *life, since time.Time) error {
	began := time.Now()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if is, err := l.since(began); is || err != nil {
		return err
	}
	err := e.ask(ctx, l)
	now := time.Now()
	if errors.Is(err, errBeside) && l.heardOf(since) {
		err = nil // others live, and so does the transport
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && l.lose(began, now, err):
		return err
	case err != nil:
		return nil
	}
	l.show(now, e.stream.client.opts.AbsentAfter)
	e.stream.at.heard()
	return nil
}

// lifeless says that the origin shows no life, while it is asked for something: as of a
// stream on which nothing ever came (muted).
func (l *line) lifeless(now time.Time) {
	if l.silent.IsZero() {
		l.quieten(now)
	}
}

// lost reports whether something came on the stream, and its origin shows no life since.
func (l *line) lost() bool { return l.had && !l.silent.IsZero() }

// found says that the origin lives. That is no word on a stream on which none came.
func (l *line) found() {
	if l.lost() {
		l.unmuted(true)
	}
}
