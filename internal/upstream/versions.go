package upstream

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"

	"golang.org/x/time/rate"

	"xdsrelay/internal/xds"
)

// A version that an origin gives of a key's type is a line of log, so that what a fleet
// has can be held against when it came. Many keys with many versions would be a flood:
// of all of them so many are told at once, and so many a second; the others are told
// to who debugs.
const (
	versionsBurst = 50
	versionsRate  = 1 // a second
)

// lines are told by one client for all its streams. Safe for concurrent use.
type lines struct {
	rate *rate.Limiter
	left atomic.Int64 // that were not told since one was
}

func newLines() *lines { return &lines{rate: rate.NewLimiter(versionsRate, versionsBurst)} }

// tell writes a line, with how many were left out before it.
func (l *lines) tell(log *slog.Logger, what string, args ...any) {
	level := slog.LevelInfo
	if !l.rate.Allow() {
		level = slog.LevelDebug
		l.left.Add(1)
	} else if left := l.left.Swap(0); left > 0 {
		args = append(args, "left_out", left)
	}
	log.Log(context.Background(), level, what, args...)
}

// toldVersion is the version of a type that was told last.
type toldVersion struct {
	typ     xds.TypeURL
	version string
}

// came tells of a version that has made another snapshot of what was, if it is another
// one. That what was recalled is what the origin has is no news.
func (s *Stream) came(u *xds.Update, was *xds.Snapshot) {
	snap := s.sink.Held(u.Type)
	if !u.Versioned() || snap == nil {
		return // a conclusion
	}
	version := u.Version
	if version == "" {
		version = snap.Version
	}
	i := slices.IndexFunc(s.told, func(t toldVersion) bool { return t.typ == u.Type })
	switch {
	case i < 0:
		wanted := s.interestNow()
		s.told = slices.DeleteFunc(s.told, func(t toldVersion) bool { return empty(wanted.Of(t.typ)) })
		s.told = append(s.told, toldVersion{u.Type, version})
	case s.told[i].version == version:
		return
	default:
		s.told[i].version = version
	}
	if was != nil && was.Stale && was.Alike(snap) {
		return
	}
	args := []any{"origin", u.Origin, "type", u.Type, "version", snap.Version}
	if u.Version != "" {
		args = append(args, "origin_version", u.Version)
	}
	s.client.versions.tell(s.log, "new version from the origin", args...)
}
