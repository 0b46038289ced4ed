package tracing

import "time"

// Batch has the traces of updates that were applied and are not published yet. It belongs to
// one goroutine. The zero Batch is empty.
type Batch []*Update

// maxPublishing bounds a Batch. Traces of further updates end as "merged".
const maxPublishing = 64

// Applied adds the trace of an update that was applied from began until now; nil: it is not
// traced.
func (b *Batch) Applied(u *Update, began time.Time) {
	if u == nil {
		return
	}
	u.Applied(began)
	if len(*b) == maxPublishing {
		u.End("merged")
		return
	}
	*b = append(*b, u)
}

// Published ends all traces: the State with this number was published from began until now
// and woke so many clients.
func (b *Batch) Published(began time.Time, state uint64, woken int) {
	for _, u := range *b {
		u.Published(began, state, woken)
	}
	*b = nil
}

// Drop ends all traces of updates that will not be published.
func (b *Batch) Drop() {
	for _, u := range *b {
		u.End("over")
	}
	*b = nil
}
