package session

import "strconv"

// Nonces makes the nonces of one stream: a prefix that no other stream of this
// process has, nor likely one of another, and a number (P10). A nonce that was
// meant for another stream is so told from one of this (P13).
type Nonces struct {
	prefix [prefixLen]byte
	last   uint64
}

const prefixLen = 9

// NonceSize is what a nonce adds to a body, at most.
const NonceSize = 2 + prefixLen + 13

// NewNonces makes those of a stream, by its number in the process and the process's own
// random number.
func NewNonces(process, stream uint64) Nonces {
	var n Nonces
	// Multiples of the golden ratio keep apart in their upper bits; with the
	// highest set, they are 8 digits.
	b := strconv.AppendUint(nil, (stream*0x9e3779b97f4a7c15+process)>>24|1<<40, 36)
	copy(n.prefix[:], b)
	n.prefix[prefixLen-1] = '-'
	return n
}

// Next appends the next nonce to dst and returns it with its number.
func (n *Nonces) Next(dst []byte) ([]byte, uint64) {
	n.last++
	return strconv.AppendUint(append(dst, n.prefix[:]...), n.last, 36), n.last
}

// Number returns the number of a nonce, 0 if it is none of this stream's.
func (n *Nonces) Number(nonce []byte) uint64 {
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
