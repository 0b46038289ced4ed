package nonce

import "strconv"

// Sequence makes the nonces of one stream (P10). A nonce is a prefix and a number. No other stream of
// this process has the same prefix, and one of another process is unlikely to have it. So the
// stream recognises a nonce of another stream (P13).
type Sequence struct {
	prefix [prefixLen]byte
	last   uint64
}

const prefixLen = 9

// Size is the most that a nonce adds to a body, in bytes.
const Size = 2 + prefixLen + 13

// New makes the nonces of a stream. process is the process's random number, and stream the
// stream's number in the process.
func New(process, stream uint64) Sequence {
	var n Sequence
	// Multiples of the golden ratio differ in their upper bits. With the highest bit set they have
	// 8 digits.
	b := strconv.AppendUint(nil, (stream*0x9e3779b97f4a7c15+process)>>24|1<<40, 36)
	copy(n.prefix[:], b)
	n.prefix[prefixLen-1] = '-'
	return n
}

// Reserve takes the numbers of the next count nonces, and returns the first one.
func (n *Sequence) Reserve(count int) (first uint64) {
	first = n.last + 1
	n.last += uint64(count)
	return first
}

// Append appends the nonce with this number to dst.
func (n *Sequence) Append(dst []byte, number uint64) []byte {
	return strconv.AppendUint(append(dst, n.prefix[:]...), number, 36)
}

// Number returns the number in a nonce; 0 if the nonce is not of this stream.
func (n *Sequence) Number(nonce []byte) uint64 {
	if len(nonce) <= prefixLen || string(nonce[:prefixLen]) != string(n.prefix[:]) {
		return 0
	}
	v := uint64(0)
	for _, c := range nonce[prefixLen:] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'z':
			c -= 'a' - 10
		default:
			return 0
		}
		if v = v*36 + uint64(c); v > n.last {
			return 0
		}
	}
	return v
}
