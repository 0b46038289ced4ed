package adsclient

import (
	"time"

	"xdsrelay/internal/xds"
)

// unanswered has the names of a type that the origin may never answer on this stream. Some origins
// remember what they sent on a stream, and do not send it again after the name was unsubscribed
// (go-control-plane#431). Only a new stream gets such a resource (P64).
type unanswered struct {
	// pending are the subscribed names that the origin has not answered since they were subscribed.
	pending *xds.NameSet
	// dropped are names that the origin answered on this stream, and that were unsubscribed since.
	dropped map[string]struct{}
	// overdueAt says when pending names count as overdue: those that were in dropped when they were
	// subscribed.
	overdueAt map[string]time.Time
}

const (
	// overdueAfter is how long an origin may take to answer a name that it answered before (P64).
	overdueAfter = 5 * time.Second
	// maxDropped bounds the names in dropped. Above it the relay forgets any of them.
	maxDropped = 10_000
)

// subscribed records that a request subscribes to names.
func (u *unanswered) subscribed(names []string, now time.Time) {
	u.pending = u.pending.Add(names...)
	for _, name := range names {
		if _, answered := u.dropped[name]; answered {
			delete(u.dropped, name)
			put(&u.overdueAt, name, now.Add(overdueAfter))
		}
	}
}

// unsubscribed records that a request unsubscribes from names.
func (u *unanswered) unsubscribed(names []string) {
	for _, name := range names {
		if _, sentBefore := u.overdueAt[name]; u.pending.Has(name) && !sentBefore {
			continue
		}
		delete(u.overdueAt, name)
		for any := range u.dropped {
			if len(u.dropped) < maxDropped {
				break
			}
			delete(u.dropped, any)
		}
		put(&u.dropped, name, struct{}{})
	}
	u.pending = u.pending.Remove(names...)
}

// answered records that a response answers names.
func (u *unanswered) answered(r *xds.Response) {
	if u.pending.Len() == 0 {
		return
	}
	names := append([]string(nil), r.Removed...)
	for i := range r.Resources {
		names = append(append(names, r.Resources[i].Name), r.Resources[i].AliasesAndGlob()...)
	}
	for _, e := range r.Errors {
		names = append(names, e.Name)
	}
	u.pending = u.pending.Remove(names...)
	for _, name := range names {
		delete(u.overdueAt, name)
	}
}

func (p *protocolState) OverdueAt() (first time.Time) {
	for _, t := range p.types {
		for _, at := range t.unanswered.overdueAt {
			if first.IsZero() || at.Before(first) {
				first = at
			}
		}
	}
	return first
}

func put[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[name] = v
}
