package orchestrator

import "slices"

// bag is a set that is a short slice most of the time, and has a map from an
// element to its place once it is long. The zero bag is empty. Order means
// nothing.
type bag[T comparable] struct {
	list []T
	at   map[T]int // nil while the list is short
}

// short is how many elements are searched one by one.
const short = 16

func (b *bag[T]) len() int { return len(b.list) }

// add puts x in; one that is there already stays there once.
func (b *bag[T]) add(x T) {
	if b.find(x) >= 0 {
		return
	}
	b.list = append(b.list, x)
	switch {
	case b.at != nil:
		b.at[x] = len(b.list) - 1
	case len(b.list) > short:
		b.at = make(map[T]int, 2*short)
		for i, y := range b.list {
			b.at[y] = i
		}
	}
}

// remove takes x out, if it is there.
func (b *bag[T]) remove(x T) {
	i, last := b.find(x), len(b.list)-1
	if i < 0 {
		return
	}
	moved := b.list[last]
	b.list[i] = moved
	clear(b.list[last:])
	b.list = b.list[:last]
	if b.at != nil {
		b.at[moved] = i
		delete(b.at, x)
	}
	if last <= short/2 {
		b.at = nil
	}
	if last == 0 {
		b.list = nil
	}
}

// find returns the place of x, -1 if it is not there.
func (b *bag[T]) find(x T) int {
	if b.at == nil {
		return slices.Index(b.list, x)
	}
	if i, ok := b.at[x]; ok {
		return i
	}
	return -1
}
