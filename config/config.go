package config

import "time"

// Config is the whole file. The yaml tags are the names that users write, and
// Default has the values of what they leave out.
type Config struct {
	Name        string      `yaml:"name"`
	Downstream  Downstream  `yaml:"downstream"`
	Upstream    Upstream    `yaml:"upstream"`
	Aggregation Aggregation `yaml:"aggregation"`
	Store       Store       `yaml:"store"`
	Admin       Admin       `yaml:"admin"`
	Metrics     Metrics     `yaml:"metrics"`
	Tracing     Tracing     `yaml:"tracing"`
	Log         Log         `yaml:"log"`

	// Places of everything that was given, and of nothing that is a default.
	Places *Places `yaml:"-"`
}

// Values of the keys that are enumerations.
const (
	VariantDelta = "delta"
	VariantSotW  = "sotw"

	BalanceRoundRobin = "round_robin"
	BalancePickFirst  = "pick_first"

	SecretsMTLS  = "mtls"
	SecretsAllow = "allow"
	SecretsDeny  = "deny"

	VersionsContent = "content"
	VersionsOrigin  = "origin"

	UnmatchedReject = "reject"
	UnmatchedNode   = "node"

	FormatText = "text"
	FormatJSON = "json"
)

// Downstream is the side of the clients.
type Downstream struct {
	// The four keys of one listener; not used if Listeners has any. See Listen.
	Address  string     `yaml:"address"`
	TLS      ServerTLS  `yaml:"tls"`
	Identity string     `yaml:"identity"`
	Secrets  string     `yaml:"secrets"`
	Several  []Listener `yaml:"listeners"`

	RESTAddress      string          `yaml:"rest_address"`
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

// Listener is an address on which clients are served.
type Listener struct {
	Address  string    `yaml:"address"`
	TLS      ServerTLS `yaml:"tls"`
	Identity string    `yaml:"identity"`
	Secrets  string    `yaml:"secrets"`

	// Key is where the listener stands, "downstream.listeners[0]" or
	// "downstream", for faults that are found later.
	Key string `yaml:"-"`
}

// Listen returns the listeners, whichever way they were written.
func (d *Downstream) Listen() []Listener {
	if len(d.Several) > 0 {
		return d.Several
	}
	return []Listener{{Address: d.Address, TLS: d.TLS, Identity: d.Identity, Secrets: d.Secrets, Key: "downstream"}}
}

// ServerTLS: without CertFile plaintext, with ClientCAFile mTLS.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"`
}

// ServerKeepalive is what the relay asks of and grants to its clients.
type ServerKeepalive struct {
	Time    time.Duration `yaml:"time"`
	Timeout time.Duration `yaml:"timeout"`
	MinTime time.Duration `yaml:"min_time"`
}

// Limits on what clients can make the relay hold; 0 is none.
type Limits struct {
	Connections          int   `yaml:"connections"`
	Streams              int   `yaml:"streams"`
	StreamsPerSecond     int   `yaml:"streams_per_second"`
	RequestsPerSecond    int   `yaml:"requests_per_second"`
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

// Upstream is the side of the origins.
type Upstream struct {
	Origins              []Origin        `yaml:"origins"`
	Variant              string          `yaml:"variant"`
	Node                 string          `yaml:"node"`
	Linger               time.Duration   `yaml:"linger"`
	IdleTTL              time.Duration   `yaml:"idle_ttl"`
	MaxIdle              int             `yaml:"max_idle"`
	FirstAnswerTimeout   time.Duration   `yaml:"first_answer_timeout"`
	MaxRequestBytes      int             `yaml:"max_request_bytes"`
	StreamsPerConnection int             `yaml:"streams_per_connection"`
	Backoff              Backoff         `yaml:"backoff"`
	Keepalive            ClientKeepalive `yaml:"keepalive"`
}

// Origin is a control plane, or a directory that stands for one.
type Origin struct {
	// Address is a gRPC target, or file:///directory: what was written as
	// file:x has become absolute. See Dir.
	Address string    `yaml:"address"`
	Name    string    `yaml:"name"`
	TLS     ClientTLS `yaml:"tls"`
	Balance string    `yaml:"balance"`
}

// ClientTLS: with no field set plaintext. See Enabled.
type ClientTLS struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// Enabled reports whether TLS was asked for.
func (t ClientTLS) Enabled() bool { return t != ClientTLS{} }

// Backoff between attempts to reach an origin (P54).
type Backoff struct {
	Base time.Duration `yaml:"base"`
	Max  time.Duration `yaml:"max"`
}

// ClientKeepalive is how the relay watches its connections to origins.
type ClientKeepalive struct {
	Time    time.Duration `yaml:"time"`
	Timeout time.Duration `yaml:"timeout"`
}

// Aggregation says which nodes share a key. Without rules and file, Rules is
// the one rule "key: node.cluster".
type Aggregation struct {
	Rules     []Rule `yaml:"rules"`
	File      string `yaml:"file"`
	Unmatched string `yaml:"unmatched"`
}

// Rule gives a key to the nodes that it matches.
type Rule struct {
	Match string  `yaml:"match"` // CEL; empty: always
	Types Strings `yaml:"types"` // URLs or short names; empty: all
	Key   Strings `yaml:"key"`   // CEL, one for each element
}

// Strings is a list that may be written as a single string.
type Strings []string

// Store is the last known good.
type Store struct {
	Path     string        `yaml:"path"`
	Interval time.Duration `yaml:"interval"`
	MaxBytes int64         `yaml:"max_bytes"`
	MaxAge   time.Duration `yaml:"max_age"`
}

// Admin is what operators reach.
type Admin struct {
	Address     string   `yaml:"address"`
	GRPCAddress string   `yaml:"grpc_address"`
	TLS         AdminTLS `yaml:"tls"`
	TokenFile   string   `yaml:"token_file"`
}

// AdminTLS: without CertFile plaintext.
type AdminTLS struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// Metrics as they leave the process.
type Metrics struct {
	Prefix        string `yaml:"prefix"`
	StatsdAddress string `yaml:"statsd_address"`
	KeyLabel      bool   `yaml:"key_label"`
}

// Tracing as it leaves the process.
type Tracing struct {
	OTLPEndpoint string  `yaml:"otlp_endpoint"`
	Sample       float64 `yaml:"sample"`
}

// Log of the process, on standard error.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Default is the configuration of an empty file: no origin, and no name, which
// Load takes from the host. Limits that are not named here are off.
func Default() Config {
	return Config{
		Downstream: Downstream{
			Address:          "127.0.0.1:15010",
			Secrets:          SecretsMTLS,
			LongPoll:         30 * time.Second,
			Versions:         VersionsContent,
			AckTimeout:       15 * time.Second,
			SendTimeout:      60 * time.Second,
			RemovalDelay:     5 * time.Second,
			MaxConnectionAge: 30 * time.Minute,
			Drain:            30 * time.Second,
			Keepalive:        ServerKeepalive{Time: 60 * time.Second, Timeout: 60 * time.Second, MinTime: 10 * time.Second},
			Limits: Limits{
				RequestsPerSecond:    1000,
				StreamsPerConnection: 100,
				RequestBytes:         16 << 20,
				NodeBytes:            1 << 20,
				NamesPerStream:       100_000,
				TypesPerStream:       64,
				Keys:                 10_000,
				NamesPerKey:          1_000_000,
				TypesPerKey:          64,
				PinnedBytes:          1 << 30,
			},
		},
		Upstream: Upstream{
			Variant:              VariantDelta,
			Linger:               10 * time.Second,
			IdleTTL:              10 * time.Minute,
			MaxIdle:              1000,
			FirstAnswerTimeout:   15 * time.Second,
			MaxRequestBytes:      4 << 20,
			StreamsPerConnection: 100,
			Backoff:              Backoff{Base: time.Second, Max: 30 * time.Second},
			Keepalive:            ClientKeepalive{Time: 6 * time.Minute, Timeout: 10 * time.Second},
		},
		Aggregation: Aggregation{Unmatched: UnmatchedReject},
		Store:       Store{Interval: 5 * time.Second, MaxBytes: 10 << 30},
		Admin:       Admin{Address: "127.0.0.1:19000"},
		Metrics:     Metrics{Prefix: "xdsrelay"},
		Tracing:     Tracing{Sample: 0.01},
		Log:         Log{Level: "info", Format: FormatText},
	}
}
