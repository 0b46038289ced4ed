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
