package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checks collects the faults of a configuration.
type checks struct {
	*Config
	faults Faults
}

// validate checks what a value's type cannot express. It reads no file.
func (c *Config) validate() Faults {
	v := checks{Config: c}
	v.downstream()
	v.upstream()
	v.aggregation()
	v.cluster()
	v.operators()
	return v.faults
}

func (v *checks) fault(key, format string, args ...any) {
	v.faults = append(v.faults, v.Places.Fault(key, format, args...))
}

func (v *checks) oneOf(key, got string, of ...string) {
	if !slices.Contains(of, got) {
		last := len(of) - 1
		v.fault(key, "must be %s or %s, but is %q", strings.Join(of[:last], ", "), of[last], got)
	}
}

// notNegative is for durations for which zero means none or at once.
func (v *checks) notNegative(key string, d time.Duration) {
	if d < 0 {
		v.fault(key, "must not be negative, but is %v", d)
	}
}

func (v *checks) positive(key string, d time.Duration) {
	if d <= 0 {
		v.fault(key, "must be more than 0s, but is %v", d)
	}
}

func (v *checks) atLeast(key string, n, least int64) {
	if n < least {
		v.fault(key, "must be at least %d, but is %d", least, n)
	}
}

func (v *checks) downstream() {
	d := &v.Downstream
	if len(d.Several) > 0 {
		for _, name := range []string{"address", "tls", "identity", "secrets", "tokens"} {
			if key := "downstream." + name; v.Places.Given(key) {
				v.fault(key, "cannot be combined with downstream.listeners, which replaces it")
			}
		}
	}
	for _, l := range d.Listen() {
		v.listen(l.Key+".address", l.Address)
		v.oneOf(l.Key+".secrets", l.Secrets, SecretsMTLS, SecretsIdentity, SecretsAllow, SecretsDeny)
		v.serverTLS(l.Key+".tls", l.TLS.CertFile, l.TLS.KeyFile)
		if l.TLS.ClientCAFile != "" && l.TLS.CertFile == "" {
			v.fault(l.Key+".tls.client_ca_file", "needs tls.cert_file: clients prove an identity only over TLS")
		}
		v.tokens(l.Key+".tokens", &l.Tokens)
	}
	if d.RESTAddress != "" {
		v.listen("downstream.rest_address", d.RESTAddress)
	}
	v.atLeast("downstream.rest_bytes", d.RESTBytes, 1)
	v.oneOf("downstream.versions", d.Versions, VersionsContent, VersionsOrigin)
	v.positive("downstream.long_poll", d.LongPoll)
	v.positive("downstream.ack_timeout", d.AckTimeout)
	v.positive("downstream.send_timeout", d.SendTimeout)
	v.notNegative("downstream.settle", d.Settle)
	v.notNegative("downstream.removal_delay", d.RemovalDelay)
	v.notNegative("downstream.max_connection_age", d.MaxConnectionAge)
	v.notNegative("downstream.drain", d.Drain)
	v.positive("downstream.keepalive.time", d.Keepalive.Time)
	v.positive("downstream.keepalive.timeout", d.Keepalive.Timeout)
	v.notNegative("downstream.keepalive.min_time", d.Keepalive.MinTime)

	for _, l := range []struct {
		key string
		n   int64
	}{
		{"streams", int64(d.Limits.Streams)},
		{"streams_per_second", int64(d.Limits.StreamsPerSecond)},
		{"requests_per_second", int64(d.Limits.RequestsPerSecond)},
		{"names_per_second", int64(d.Limits.NamesPerSecond)},
		{"streams_per_peer", int64(d.Limits.StreamsPerPeer)},
		{"streams_per_connection", int64(d.Limits.StreamsPerConnection)},
		{"request_bytes", int64(d.Limits.RequestBytes)},
		{"node_bytes", int64(d.Limits.NodeBytes)},
		{"names_per_stream", int64(d.Limits.NamesPerStream)},
		{"types_per_stream", int64(d.Limits.TypesPerStream)},
		{"keys", int64(d.Limits.Keys)},
		{"keys_per_peer", int64(d.Limits.KeysPerPeer)},
		{"names_per_key", int64(d.Limits.NamesPerKey)},
		{"types_per_key", int64(d.Limits.TypesPerKey)},
		{"pinned_bytes", d.Limits.PinnedBytes},
	} {
		v.atLeast("downstream.limits."+l.key, l.n, 0)
	}
}

// tokens checks which tokens of clients are accepted.
func (v *checks) tokens(key string, t *Tokens) {
	v.oneOf(key+".on_expiry", t.OnExpiry, OnExpiryKeep, OnExpiryEnd)
	if t.Issuer == "" {
		if len(t.Audiences) > 0 || t.JWKSFile != "" || t.JWKSURL != "" {
			v.fault(key+".issuer", "is missing; without it, no token is accepted")
		}
		return
	}
	if len(t.Audiences) == 0 || slices.Contains(t.Audiences, "") {
		v.fault(key+".audiences", "must name the audiences of which a token has one: otherwise a token for another service would be accepted")
	}
	u, err := url.Parse(t.JWKSURL)
	switch {
	case t.JWKSFile == "" && t.JWKSURL == "":
		v.fault(key+".jwks_file", "is missing; set it or jwks_url, from which the issuer's keys are read")
	case t.JWKSFile != "" && t.JWKSURL != "":
		v.fault(key+".jwks_url", "cannot be combined with jwks_file; use only one of them")
	case t.JWKSURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		v.fault(key+".jwks_url", "must be a URL such as https://kubernetes.default.svc/openid/v1/jwks, but is %q", t.JWKSURL)
	case t.JWKSURL != "" && u.User != nil:
		v.fault(key+".jwks_url", "must have no user and no password; jwks_token_file may have a token for it")
	case t.JWKSURL != "" && u.Scheme == "http" && !Loopback(net.JoinHostPort(u.Hostname(), "80")):
		v.fault(key+".jwks_url", "must be https: over plaintext, another host could give its own keys")
	case t.JWKSURL == "" && (t.JWKSCAFile != "" || t.JWKSTokenFile != ""):
		v.fault(key+".jwks_url", "is missing; jwks_ca_file and jwks_token_file are for it")
	}
}

func (v *checks) originToken(key string, o *Origin) {
	if o.Token != "" && o.Token != TokenRepresentative {
		v.fault(key+".token", "must be %s or empty; a token itself belongs into the file of token_file", TokenRepresentative)
		return
	}
	if o.TokenFile == "" && o.Token == "" {
		return
	}
	name := key + ".token_file"
	if o.Token != "" {
		name = key + ".token"
	}
	switch _, isDir := o.Dir(); {
	case isDir:
		v.fault(name, "cannot be set for a directory")
	case o.TokenFile != "" && o.Token != "":
		v.fault(name, "cannot be combined with token_file; use only one of them")
	case o.TLS == nil && !o.TokenPlaintext && !o.local():
		v.fault(name, "needs %s.tls, because the token would cross the network in plaintext; or set token_plaintext: true", key)
	}
	if o.Token == "" {
		return
	}
	for _, l := range v.Downstream.Listen() {
		if l.Tokens.Issuer == "" {
			v.fault(name, "needs %s.tokens: the relay passes on only tokens that it has verified", l.Key)
		}
	}
	if v.Upstream.Node != "" {
		v.fault("upstream.node", "cannot be combined with %s: the origin would get a client's token with another node", name)
	}
}

// local reports whether the origin is on this host.
func (o *Origin) local() bool {
	if strings.HasPrefix(o.Address, "unix:") || strings.HasPrefix(o.Address, "unix-abstract:") {
		return true
	}
	at := strings.TrimPrefix(o.Address[strings.LastIndexByte(o.Address, '/')+1:], "dns:")
	if _, _, err := net.SplitHostPort(at); err != nil { // a name without a port
		at = net.JoinHostPort(at, "443")
	}
	return Loopback(at)
}

func (v *checks) upstream() {
	u := &v.Upstream
	if len(u.Origins) == 0 {
		v.fault("upstream.origins", "must have at least one origin, such as [{address: \"127.0.0.1:18000\"}]")
	}
	names := map[string]int{}
	for i := range u.Origins {
		v.origin(fmt.Sprintf("upstream.origins[%d]", i), &u.Origins[i])
		if first, ok := names[u.Origins[i].Name]; ok && u.Origins[i].Name != "" {
			v.fault(fmt.Sprintf("upstream.origins[%d].name", i), "%q is already the name of upstream.origins[%d]", u.Origins[i].Name, first)
		} else {
			names[u.Origins[i].Name] = i
		}
	}
	v.oneOf("upstream.variant", u.Variant, VariantDelta, VariantSotW)
	v.notNegative("upstream.linger", u.Linger)
	v.notNegative("upstream.idle_ttl", u.IdleTTL)
	v.atLeast("upstream.max_idle", int64(u.MaxIdle), 0)
	v.positive("upstream.first_answer_timeout", u.FirstAnswerTimeout)
	v.atLeast("upstream.max_request_bytes", int64(u.MaxRequestBytes), 1)
	v.atLeast("upstream.streams_per_connection", int64(u.StreamsPerConnection), 1)
	v.positive("upstream.backoff.base", u.Backoff.Base)
	v.positive("upstream.backoff.max", u.Backoff.Max)
	if u.Backoff.Base > u.Backoff.Max {
		v.fault("upstream.backoff.base", "must be at most upstream.backoff.max (%v), but is %v", u.Backoff.Max, u.Backoff.Base)
	}
	v.positive("upstream.keepalive.time", u.Keepalive.Time)
	v.positive("upstream.keepalive.timeout", u.Keepalive.Timeout)
}

func (v *checks) origin(key string, o *Origin) {
	dir, isDir := o.Dir()
	switch {
	case o.Address == "":
		v.fault(key+".address", "is missing; must be a gRPC target, or file: and a directory")
	case o.Address == "file:" || isDir && !filepath.IsAbs(dir):
		v.fault(key+".address", "must be file:///absolute/directory, or file:directory relative to this file, but is %q", o.Address)
	case !isDir:
		v.target(key+".address", o.Address)
	}
	v.oneOf(key+".balance", o.Balance, BalanceRoundRobin, BalancePickFirst)
	v.originToken(key, o)
	if o.TLS == nil {
		return
	}
	v.pair(key+".tls", o.TLS.CertFile, o.TLS.KeyFile)
	if isDir && *o.TLS != (ClientTLS{}) {
		v.fault(key+".tls", "cannot be set for a directory")
	}
}

// target checks a gRPC target: host:port, or a scheme that the relay's gRPC supports. gRPC would
// read another scheme as a host's name.
func (v *checks) target(key, address string) {
	if strings.ContainsAny(address, " \t\n") {
		v.fault(key, "must be a gRPC target without white space, but is %q", address)
		return
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" || !slices.Contains(targetSchemes, u.Scheme) {
		if scheme, _, ok := strings.Cut(address, "://"); ok {
			v.fault(key, "must be host:port, or begin with one of %s:, but begins with %s:", strings.Join(targetSchemes, ": "), scheme)
			return
		}
		v.endpoint(key, address, true)
		return
	}
	endpoint := u.Opaque
	if endpoint == "" {
		endpoint = u.Path
	}
	if u.Scheme == "dns" || u.Scheme == "passthrough" {
		v.endpoint(key, strings.TrimPrefix(endpoint, "/"), u.Scheme == "passthrough")
	} else if strings.Trim(endpoint, "/") == "" {
		v.fault(key, "must name a socket, but is %q", address)
	}
}

// targetSchemes are the schemes of gRPC's built-in resolvers.
var targetSchemes = []string{"dns", "passthrough", "unix", "unix-abstract"}

// endpoint checks the host and port of a target. dns: has a default port.
func (v *checks) endpoint(key, endpoint string, wantsPort bool) {
	host, port, err := net.SplitHostPort(endpoint)
	switch {
	case err != nil && (wantsPort || endpoint == "" || strings.Count(endpoint, ":") == 1):
		v.fault(key, "must be host:port, such as xds.example:18000, but is %q", endpoint)
	case err == nil && host == "" && port == "":
		v.fault(key, "must be host:port, but has no host")
	case err == nil:
		v.hostPort(key, host, port)
	}
}

func (v *checks) aggregation() {
	a := &v.Aggregation
	if a.File != "" && len(a.Rules) > 0 {
		v.fault("aggregation.file", "cannot be combined with aggregation.rules; use only one of them")
	}
	v.oneOf("aggregation.unmatched", a.Unmatched, UnmatchedReject, UnmatchedNode)
	if _, err := parsePercent(a.MaxRekeyed); err != nil {
		v.fault("aggregation.max_rekeyed", "%v", err)
	}
	v.faults = append(v.faults, CheckRules("aggregation.rules", a.Rules, v.Places)...)
}

// parsePercent returns the number in a percentage such as "50%", from 0 to 100.
func parsePercent(s string) (float64, error) {
	number, is := strings.CutSuffix(s, "%")
	p, err := strconv.ParseFloat(number, 64)
	if !is || err != nil || !(p >= 0 && p <= 100) { // NaN is none of both
		return 0, fmt.Errorf("must be a percentage from 0%% to 100%%, but is %q", s)
	}
	return p, nil
}

// fewClients is the number of clients below which max_rekeyed does not apply: one of few clients is a
// large share.
const fewClients = 20

// NeedsForce reports whether a reload that changes the key of so many of the clients needs force.
func (a *Aggregation) NeedsForce(rekeyed, clients int) bool {
	percent, err := parsePercent(a.MaxRekeyed) // it was checked
	return err == nil && clients >= fewClients && float64(100*rekeyed) > percent*float64(clients)
}

// CheckRules checks rules as far as that needs no compiler. key is the list's key.
func CheckRules(key string, rules []Rule, places *Places) Faults {
	var faults Faults
	for i, r := range rules {
		sub := fmt.Sprintf("%s[%d]", key, i)
		if len(r.Key) == 0 {
			faults = append(faults, places.Fault(sub+".key", "is missing; must be an expression or a list of expressions"))
		}
		for j, k := range r.Key {
			if strings.TrimSpace(k) == "" {
				faults = append(faults, places.Fault(fmt.Sprintf("%s.key[%d]", sub, j), "is empty; the relay would refuse every node"))
			}
		}
	}
	return faults
}

// cluster checks the cluster, if there is one.
func (v *checks) cluster() {
	c := &v.Cluster
	if c.Name == "" {
		return
	}
	v.listen("cluster.address", c.Address)
	v.listen("cluster.gossip", c.Gossip)
	gossip, err := netip.ParseAddrPort(c.Gossip)
	if err != nil {
		v.fault("cluster.gossip", "must be an IP address with a port, but is %q", c.Gossip)
	}
	advertise, err := netip.ParseAddr(c.Advertise)
	switch {
	case c.Advertise == "" && gossip.Addr() == netip.IPv6Unspecified():
		// memberlist finds the address only for 0.0.0.0. It would advertise ::, which is each member itself.
		v.fault("cluster.gossip", "%s listens at all addresses; set cluster.advertise to the one that others reach", c.Gossip)
	case c.Advertise != "" && (err != nil || advertise.IsUnspecified()):
		v.fault("cluster.advertise", "must be an IP address that others reach, but is %q", c.Advertise)
	}
	for i, address := range c.Join {
		v.listen(fmt.Sprintf("cluster.join[%d]", i), address)
	}
	if v.Upstream.Node == "" && !v.Upstream.ByToken() {
		v.fault("upstream.node", "must not be empty in a cluster, because the first client's node would change with the owner; write node to send that of the first client")
	}
	v.serverTLS("cluster.tls", c.TLS.CertFile, c.TLS.KeyFile)
	if t := c.TLS; t != (MemberTLS{}) {
		if t.CertFile == "" || t.CAFile == "" {
			v.fault("cluster.tls", "needs cert_file, key_file and ca_file: members prove themselves to each other")
		}
		if c.Identity == "" {
			v.fault("cluster.identity", "is missing: it says which certificates are those of members")
		}
	} else if !Loopback(c.Address) {
		v.fault("cluster.address", "%s is not a loopback address; set cluster.tls", c.Address)
	}
	if c.GossipKeyFile == "" && !Loopback(c.Gossip) {
		v.fault("cluster.gossip", "%s is not a loopback address; set cluster.gossip_key_file", c.Gossip)
	}
}

var metricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// operators checks store, admin, metrics, tracing and log.
func (v *checks) operators() {
	v.notNegative("store.interval", v.Store.Interval)
	v.atLeast("store.max_bytes", v.Store.MaxBytes, 0)
	v.notNegative("store.max_age", v.Store.MaxAge)

	for _, a := range []struct{ key, address string }{
		{"admin.address", v.Admin.Address}, {"admin.grpc_address", v.Admin.GRPCAddress},
	} {
		if a.address == "" {
			continue
		}
		v.listen(a.key, a.address)
		if v.Admin.TokenFile == "" && !Loopback(a.address) {
			v.fault(a.key, "%s is not a loopback address; set admin.token_file", a.address)
		}
	}
	v.serverTLS("admin.tls", v.Admin.TLS.CertFile, v.Admin.TLS.KeyFile)
	v.distinct()

	if !metricName.MatchString(v.Metrics.Prefix) {
		v.fault("metrics.prefix", "must be letters, digits and underscores, with no digit first, but is %q", v.Metrics.Prefix)
	}
	if a := v.Metrics.StatsdAddress; a != "" {
		v.listen("metrics.statsd_address", a)
	}
	if e := v.Tracing.OTLPEndpoint; e != "" {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			v.fault("tracing.otlp_endpoint", "must be the URL of a collector for OTLP over HTTP, such as http://collector:4318, but is %q", e)
		}
	}
	if s := v.Tracing.Sample; !(s >= 0 && s <= 1) {
		v.fault("tracing.sample", "must be between 0 and 1, but is %v", s)
	}
	v.oneOf("log.level", v.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", v.Log.Format, FormatText, FormatJSON)
}

// distinct finds listeners with conflicting addresses.
func (v *checks) distinct() {
	type listener struct{ key, address, host, port string }
	var taken []listener
	use := func(key, address string) {
		host, port, err := net.SplitHostPort(address)
		port = strings.TrimLeft(port, "0")
		if err != nil || port == "" { // off, a port of the kernel's choice, or a fault of listen
			return
		}
		l := listener{key, address, host, port}
		i := slices.IndexFunc(taken, func(o listener) bool { return o.port == l.port && overlap(o.host, l.host) })
		switch {
		case i < 0:
			taken = append(taken, l)
		case taken[i].address == address:
			v.fault(key, "%s is already used by %s", address, taken[i].key)
		default:
			v.fault(key, "%s has the same port as %s, which is %s", address, taken[i].key, taken[i].address)
		}
	}
	for _, l := range v.Downstream.Listen() {
		use(l.Key+".address", l.Address)
	}
	use("downstream.rest_address", v.Downstream.RESTAddress)
	use("admin.address", v.Admin.Address)
	use("admin.grpc_address", v.Admin.GRPCAddress)
	if v.Cluster.Name != "" {
		use("cluster.address", v.Cluster.Address)
		use("cluster.gossip", v.Cluster.Gossip)
	}
}

// overlap reports whether listening on both hosts with one port fails. An empty host, 0.0.0.0 and
// :: are all addresses of both families, because Go listens on all of them.
func overlap(a, b string) bool {
	every := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.Unmap().IsUnspecified()
	}
	is := func(host string) string {
		if host == "localhost" {
			return "127.0.0.1"
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			return ip.Unmap().String()
		}
		return host
	}
	return every(a) || every(b) || is(a) == is(b)
}

// listen checks an address to listen on or to send to.
func (v *checks) listen(key, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		v.fault(key, "must be host:port, but is %q", address)
		return
	}
	v.hostPort(key, host, port)
}

// hostName matches what DNS can have, and number what ends like an IP address.
var (
	hostName = regexp.MustCompile(`^(\w([\w-]*\w)?\.)*\w([\w-]*\w)?\.?$`)
	number   = regexp.MustCompile(`(^|\.)\d+\.?$`)
)

// hostPort checks the parts of an address. The host may be empty.
func (v *checks) hostPort(key, host, port string) {
	if _, err := netip.ParseAddr(host); err != nil && host != "" && (!hostName.MatchString(host) || number.MatchString(host)) {
		v.fault(key, "must have an IP address or a host name, but has %q", host)
	}
	if n, err := strconv.ParseUint(port, 10, 32); err != nil || n > 65535 {
		v.fault(key, "must have a port from 0 to 65535, but has %q", port)
	}
}

// serverTLS checks the mapping key. An empty one would be plaintext, although it asks for TLS.
func (v *checks) serverTLS(key, cert, private string) {
	v.pair(key, cert, private)
	if v.Places.Empty(key) {
		v.fault(key, "is empty; set cert_file and key_file, or remove the key for plaintext")
	}
}

// pair checks that a certificate and its key are given together.
func (v *checks) pair(key, cert, private string) {
	switch {
	case cert != "" && private == "":
		v.fault(key+".key_file", "is missing; cert_file needs it")
	case cert == "" && private != "":
		v.fault(key+".cert_file", "is missing; key_file needs it")
	}
}

// Loopback reports whether only this host can reach address.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // a fault of listen
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
