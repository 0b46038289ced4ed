package fanout

import (
	"context"
	"time"

	"xdsrelay/internal/telemetry"
)

// censusEvery is how often clients are counted by where they stand. It looks at each
// stream, one lock at a time, as a look at all clients does; so not at each
// scrape, of which there may be many.
const censusEvery = 10 * time.Second

var standingOf = map[string]telemetry.Standing{
	Synced: telemetry.StandsSynced, NotSent: telemetry.StandsNotSent, Unanswered: telemetry.StandsStale, Refused: telemetry.StandsNacked,
}

// census counts until ctx ends.
func (s *Server) census(ctx context.Context) {
	tick := time.NewTicker(censusEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.meters.Stand(s.standings())
		case <-ctx.Done():
			return
		}
	}
}

// standings are the numbers of all streams, and of all that polls.
func (s *Server) standings() (all telemetry.Standings) {
	look := newSurvey()
	for _, st := range s.all() {
		st.mu.Lock()
		for _, sl := range st.order {
			if sl.member != nil {
				all.Count(sl.Type.URL, standingOf[sl.stands(look).state])
			}
		}
		st.mu.Unlock()
	}
	for _, p := range s.pollers.all() {
		all.Count(p.typ.URL, standingOf[s.pollers.standing(p).State])
	}
	return all
}
