package config

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Config is the whole file. The yaml tags are the keys of the file. Default has the values of keys
// that are left out.
type Config struct {
	Name        string      `yaml:"name"`
	Downstream  Downstream  `yaml:"downstream"`
	Upstream    Upstream    `yaml:"upstream"`
	Aggregation Aggregation `yaml:"aggregation"`
	Cluster     Cluster     `yaml:"cluster"`
	Store       Store       `yaml:"store"`
	Admin       Admin       `yaml:"admin"`
	Metrics     Metrics     `yaml:"metrics"`
	Tracing     Tracing     `yaml:"tracing"`
	Log         Log         `yaml:"log"`

	// Places has the positions of all given values, not of defaults.
	Places *Places `yaml:"-"`
}

// Values of the keys that are enumerations.
const (
	VariantDelta = "delta"
	VariantSotW  = "sotw"

	BalanceRoundRobin = "round_robin"
	BalancePickFirst  = "pick_first"

	SecretsMTLS     = "mtls"
	SecretsIdentity = "identity"
	SecretsAllow    = "allow"
	SecretsDeny     = "deny"

	OnExpiryKeep = "keep"
	OnExpiryEnd  = "end"

	TokenRepresentative = "representative"

	VersionsContent = "content"
	VersionsOrigin  = "origin"

	UnmatchedReject = "reject"
	UnmatchedNode   = "node"

	FormatText = "text"
	FormatJSON = "json"
)

// Downstream configures the side of the clients.
type Downstream struct {
	// The five keys of the only listener; not used if Several is not empty. See Listen.
	Address  string     `yaml:"address"`
	TLS      ServerTLS  `yaml:"tls"`
	Identity string     `yaml:"identity"`
	Secrets  string     `yaml:"secrets"`
	Tokens   Tokens     `yaml:"tokens"`
	Several  []Listener `yaml:"listeners"`

	RESTAddress      string          `yaml:"rest_address"`
	RESTBytes        int64           `yaml:"rest_bytes"`
	LongPoll         time.Duration   `yaml:"long_poll"`
	Versions         string          `yaml:"versions"`
	AckTimeout       time.Duration   `yaml:"ack_timeout"`
	SendTimeout      time.Duration   `yaml:"send_timeout"`
	Settle           time.Duration   `yaml:"settle"`
	RemovalDelay     time.Duration   `yaml:"removal_delay"`
	MaxConnectionAge time.Duration   `yaml:"max_connection_age"`
	Drain            time.Duration   `yaml:"drain"`
	Keepalive        ServerKeepalive `yaml:"keepalive"`
	Limits           Limits          `yaml:"limits"`
}

// Listener is an address for clients.
type Listener struct {
	Address  string    `yaml:"address"`
	TLS      ServerTLS `yaml:"tls"`
	Identity string    `yaml:"identity"`
	Secrets  string    `yaml:"secrets"`
	Tokens   Tokens    `yaml:"tokens"`

	// Key is the listener's place in the configuration, "downstream.listeners[0]" or "downstream",
	// for faults.
	Key string `yaml:"-"`
}

// Tokens says which JSON Web Tokens of clients are accepted. Without an issuer, no token is read.
// With one, every client needs a token.
type Tokens struct {
	Issuer    string   `yaml:"issuer"`
	Audiences []string `yaml:"audiences"` // a token has one of them
	// The issuer's public keys, a JSON Web Key Set, are in a file or at a URL.
	JWKSFile      string `yaml:"jwks_file"`
	JWKSURL       string `yaml:"jwks_url"`
	JWKSCAFile    string `yaml:"jwks_ca_file"`    // empty: the system's
	JWKSTokenFile string `yaml:"jwks_token_file"` // a token for the URL; empty: none
	OnExpiry      string `yaml:"on_expiry"`       // of a token: OnExpiryKeep or OnExpiryEnd
}

// Listen returns the listeners, from Several or from the five keys.
func (d *Downstream) Listen() []Listener {
	if len(d.Several) > 0 {
		return d.Several
	}
	return []Listener{{Address: d.Address, TLS: d.TLS, Identity: d.Identity, Secrets: d.Secrets, Tokens: d.Tokens, Key: "downstream"}}
}

// ServerTLS is TLS of a listener. Without CertFile it is plaintext; with ClientCAFile it is mTLS.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"`
}

// ServerKeepalive is the keepalive of connections from clients, and the least time between their
// pings.
type ServerKeepalive struct {
	Time    time.Duration `yaml:"time"`
	Timeout time.Duration `yaml:"timeout"`
	MinTime time.Duration `yaml:"min_time"`
}

// Limits bound what clients can make the relay hold; 0 is no limit.
type Limits struct {
	Connections          Count `yaml:"connections"`
	Streams              int   `yaml:"streams"`
	StreamsPerSecond     int   `yaml:"streams_per_second"`
	RequestsPerSecond    int   `yaml:"requests_per_second"`
	NamesPerSecond       int   `yaml:"names_per_second"`
	StreamsPerPeer       int   `yaml:"streams_per_peer"`
	StreamsPerConnection int   `yaml:"streams_per_connection"`
	RequestBytes         int   `yaml:"request_bytes"`
	NodeBytes            int   `yaml:"node_bytes"`
	NamesPerStream       int   `yaml:"names_per_stream"`
	TypesPerStream       int   `yaml:"types_per_stream"`
	Keys                 int   `yaml:"keys"`
	KeysPerPeer          int   `yaml:"keys_per_peer"`
	NamesPerKey          int   `yaml:"names_per_key"`
	TypesPerKey          int   `yaml:"types_per_key"`
	PinnedBytes          int64 `yaml:"pinned_bytes"`
}

// Count is a number, or Auto.
type Count int

// Auto lets the relay choose the number. It is written as auto.
const Auto Count = -1

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Count) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*c = Auto
		return nil
	}
	n, err := strconv.ParseUint(string(text), 10, 31)
	if err != nil {
		return fmt.Errorf("must be auto or a number from 0 on, but is %q", text)
	}
	*c = Count(n)
	return nil
}

// Upstream configures the side of the origins.
type Upstream struct {
	Origins                   []Origin        `yaml:"origins"`
	Variant                   string          `yaml:"variant"`
	Node                      string          `yaml:"node"`
	Linger                    time.Duration   `yaml:"linger"`
	IdleTTL                   time.Duration   `yaml:"idle_ttl"`
	MaxIdle                   int             `yaml:"max_idle"`
	FirstAnswerTimeout        time.Duration   `yaml:"first_answer_timeout"`
	SetNodeOnFirstMessageOnly bool            `yaml:"set_node_on_first_message_only"`
	MaxRequestBytes           int             `yaml:"max_request_bytes"`
	StreamsPerConnection      int             `yaml:"streams_per_connection"`
	Backoff                   Backoff         `yaml:"backoff"`
	Keepalive                 ClientKeepalive `yaml:"keepalive"`
}

// ByToken reports whether an origin gets the tokens of clients.
func (u *Upstream) ByToken() bool {
	return slices.ContainsFunc(u.Origins, func(o Origin) bool { return o.Token == TokenRepresentative })
}

// Origin is a control plane, or a directory of files.
type Origin struct {
	// Address is a gRPC target, or file:///directory. Load makes file:x absolute. See Dir.
	Address string     `yaml:"address"`
	Name    string     `yaml:"name"`
	TLS     *ClientTLS `yaml:"tls"` // nil: plaintext
	Balance string     `yaml:"balance"`
	// TokenFile has a bearer token for each stream. TokenPlaintext sends a token also without TLS to
	// another host.
	TokenFile      string `yaml:"token_file"`
	TokenPlaintext bool   `yaml:"token_plaintext"`
	// Token is TokenRepresentative, or empty.
	Token string `yaml:"token"`
}

// ClientTLS is TLS to an origin. If it is empty, the system's CAs verify the origin.
type ClientTLS struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// Backoff bounds the time between attempts to reach an origin (P54).
type Backoff struct {
	Base time.Duration `yaml:"base"`
	Max  time.Duration `yaml:"max"`
}

// ClientKeepalive is the keepalive of connections to origins.
type ClientKeepalive struct {
	Time    time.Duration `yaml:"time"`
	Timeout time.Duration `yaml:"timeout"`
}

// Aggregation decides which nodes share a key. Without rules and file, Rules has the one rule "key:
// node.cluster".
type Aggregation struct {
	Rules     []Rule `yaml:"rules"`
	File      string `yaml:"file"`
	Unmatched string `yaml:"unmatched"`
	// MaxRekeyed is a percentage of the clients: see Percent.
	MaxRekeyed string `yaml:"max_rekeyed"`
}

// Rule gives a key to the nodes that it matches.
type Rule struct {
	Match string  `yaml:"match"` // CEL; empty: always
	Types Strings `yaml:"types"` // URLs or short names; empty: all
	Key   Strings `yaml:"key"`   // CEL, one for each element
}

// Strings is a list that may also be written as a single string.
type Strings []string

// Cluster makes several relays share one origin stream for each key. It is off without a Name.
type Cluster struct {
	Name          string    `yaml:"name"`
	Address       string    `yaml:"address"`   // serves other members
	Gossip        string    `yaml:"gossip"`    // TCP and UDP
	Advertise     string    `yaml:"advertise"` // IP; empty: found from the interfaces
	Join          []string  `yaml:"join"`
	TLS           MemberTLS `yaml:"tls"`
	Identity      string    `yaml:"identity"`
	GossipKeyFile string    `yaml:"gossip_key_file"`
}

// MemberTLS is mutual TLS between members, with one certificate for both directions. Without CertFile it
// is plaintext.
type MemberTLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	CAFile   string `yaml:"ca_file"`
}

// Store configures the last known good.
type Store struct {
	Path     string        `yaml:"path"`
	Interval time.Duration `yaml:"interval"`
	MaxBytes int64         `yaml:"max_bytes"`
	MaxAge   time.Duration `yaml:"max_age"`
}

// Admin configures the API for operators.
type Admin struct {
	Address     string   `yaml:"address"`
	GRPCAddress string   `yaml:"grpc_address"`
	TLS         AdminTLS `yaml:"tls"`
	TokenFile   string   `yaml:"token_file"`
}

// AdminTLS is TLS of the admin addresses. Without CertFile it is plaintext.
type AdminTLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

type Metrics struct {
	Prefix        string `yaml:"prefix"`
	StatsdAddress string `yaml:"statsd_address"`
	KeyLabel      bool   `yaml:"key_label"`
}

type Tracing struct {
	OTLPEndpoint string  `yaml:"otlp_endpoint"`
	Sample       float64 `yaml:"sample"`
}

// Log configures the process' log on standard error.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Default is the configuration of an empty file. It has no origins, and no name: Load takes that
// from the host. Limits that it does not set are off.
func Default() Config {
	return Config{
		Downstream: Downstream{
			Address:          "127.0.0.1:15010",
			Secrets:          SecretsMTLS,
			Tokens:           Tokens{OnExpiry: OnExpiryKeep},
			RESTBytes:        256 << 20,
			LongPoll:         30 * time.Second,
			Versions:         VersionsContent,
			AckTimeout:       15 * time.Second,
			SendTimeout:      60 * time.Second,
			RemovalDelay:     5 * time.Second,
			MaxConnectionAge: 30 * time.Minute,
			Drain:            30 * time.Second,
			Keepalive:        ServerKeepalive{Time: 60 * time.Second, Timeout: 60 * time.Second, MinTime: 10 * time.Second},
			Limits: Limits{
				Connections:          Auto,
				RequestsPerSecond:    1000,
				NamesPerSecond:       5000,
				StreamsPerConnection: 100,
				RequestBytes:         16 << 20,
				NodeBytes:            1 << 20,
				NamesPerStream:       100_000,
				TypesPerStream:       64,
				Keys:                 10_000,
				KeysPerPeer:          10_000,
				NamesPerKey:          200_000,
				TypesPerKey:          64,
				PinnedBytes:          1 << 30,
			},
		},
		Upstream: Upstream{
			Variant:              VariantDelta,
			Linger:               10 * time.Second,
			IdleTTL:              10 * time.Minute,
			MaxIdle:              1000,
			FirstAnswerTimeout:   10 * time.Second,
			MaxRequestBytes:      4 << 20,
			StreamsPerConnection: 100,
			Backoff:              Backoff{Base: time.Second, Max: 30 * time.Second},
			Keepalive:            ClientKeepalive{Time: 6 * time.Minute, Timeout: 10 * time.Second},
		},
		Aggregation: Aggregation{Unmatched: UnmatchedReject, MaxRekeyed: "50%"},
		Cluster:     Cluster{Address: "0.0.0.0:15020", Gossip: "0.0.0.0:7946", Join: []string{}},
		Store:       Store{Interval: 5 * time.Second, MaxBytes: 10 << 30},
		Admin:       Admin{Address: "127.0.0.1:19000"},
		Metrics:     Metrics{Prefix: "xdsrelay"},
		Tracing:     Tracing{Sample: 0.01},
		Log:         Log{Level: "info", Format: FormatText},
	}
}
