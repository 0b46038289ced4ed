package audience

import "slices"

// set is a set that is a short slice most of the time. A long one also has a map from each
// element to its index. The zero set is empty. The order has no meaning.
type set[T comparable] struct {
	list []T
	at   map[T]int // nil while the list is short
}

// short is the number of elements that are searched one by one.
const short = 16

func (s *set[T]) len() int { return len(s.list) }

// add adds x, unless it is there already.
func (s *set[T]) add(x T) {
	if s.find(x) >= 0 {
		return
	}
	s.list = append(s.list, x)
	switch {
	case s.at != nil:
		s.at[x] = len(s.list) - 1
	case len(s.list) > short:
		s.at = make(map[T]int, 2*short)
		for i, y := range s.list {
			s.at[y] = i
		}
	}
}

// remove removes x, if it is there.
func (s *set[T]) remove(x T) {
	i, last := s.find(x), len(s.list)-1
	if i < 0 {
		return
	}
	moved := s.list[last]
	s.list[i] = moved
	clear(s.list[last:])
	s.list = s.list[:last]
	if s.at != nil {
		s.at[moved] = i
		delete(s.at, x)
	}
	if last <= short/2 {
		s.at = nil
	}
	if last == 0 {
		s.list = nil
	}
}

// find returns the index of x; -1 if it is not there.
func (s *set[T]) find(x T) int {
	if s.at == nil {
		return slices.Index(s.list, x)
	}
	if i, ok := s.at[x]; ok {
		return i
	}
	return -1
}
