package cluster

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	// protocol is the version of the protocol between members. The metadata of all versions begins
	// with the version and a newline.
	protocol = "1"
	// maxMetadata is memberlist's limit, in bytes.
	maxMetadata = 512
	// maxCompat is how many bytes of the compat are told.
	maxCompat = 64
)

// metadata returns what a member tells others about itself, as lines. address is where others reach
// its member listener; an unspecified host stands for its IP in gossip.
func (p *peer) metadata(address string) string {
	flags := ""
	if p.Ready {
		flags += "r"
	}
	if p.Draining {
		flags += "d"
	}
	return strings.Join([]string{protocol, flags, strconv.FormatInt(p.started, 10), address, p.Version, p.Compat}, "\n")
}

// read reads what metadata returned for a member. What a later version of the protocol appends is
// ignored. p.gossip is set before.
func (p *peer) read(metadata string) {
	lines := strings.Split(metadata, "\n")
	if p.known = len(lines) >= 6 && lines[0] == protocol; !p.known {
		return
	}
	p.Ready, p.Draining = strings.Contains(lines[1], "r"), strings.Contains(lines[1], "d")
	p.started, _ = strconv.ParseInt(lines[2], 10, 64) // 0 is the oldest
	p.Address, p.Version, p.Compat = reachable(lines[3], p.gossip.Addr()), lines[4], lines[5]
}

// reachable returns an address, with an unspecified host replaced by ip.
func reachable(address string, ip netip.Addr) string {
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().IsUnspecified() {
		return net.JoinHostPort(ip.String(), strconv.Itoa(int(a.Port())))
	}
	return address
}
