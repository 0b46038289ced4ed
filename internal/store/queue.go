package store

// queue has the items that are to be looked at, the first to be due first. It is a
// heap, used through container/heap.
type queue []*item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push and Pop are the heap's.
func (q *queue) Push(x any) {
	it := x.(*item)
	it.at = len(*q)
	*q = append(*q, it)
}

func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	last.at = -1
	return last
}

// ages has the files of the index, the one first that was confirmed longest ago: a
// heap, so that nobody goes over all of them while others wait for mu.
type ages []*file

func (a ages) Len() int           { return len(a) }
func (a ages) Less(i, j int) bool { return a[i].confirmed.Before(a[j].confirmed) }
func (a ages) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}

// Push and Pop are the heap's.
func (a *ages) Push(x any) {
	f := x.(*file)
	f.at = len(*a)
	*a = append(*a, f)
}

func (a *ages) Pop() any {
	last := (*a)[len(*a)-1]
	(*a)[len(*a)-1] = nil
	*a = (*a)[:len(*a)-1]
	return last
}

// but returns the first that is not own; nil: there is none.
func (a ages) but(own *file) *file {
	switch {
	case len(a) == 0, len(a) == 1 && a[0] == own:
		return nil
	case a[0] != own:
		return a[0]
	case len(a) == 2 || a.Less(1, 2):
		return a[1]
	}
	return a[2]
}
