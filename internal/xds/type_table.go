package xds

import (
	"cmp"
	"log/slog"
	"strings"
)

// TypeURL is a resource type as written in type_url.
type TypeURL string

// LogValue makes log lines have the short name, such as CDS, of a type in the table.
func (u TypeURL) LogValue() slog.Value { return slog.StringValue(cmp.Or(TypeOf(u).Short, string(u))) }

// The types that the protocol names. The relay carries any other type URL too (P3); TypeOf returns
// the general rules for it.
const (
	ClusterType   TypeURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType  TypeURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType  TypeURL = "type.googleapis.com/envoy.config.listener.v3.Listener"
	ScopedType    TypeURL = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	RouteType     TypeURL = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	VHostType     TypeURL = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
	SecretType    TypeURL = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
	RuntimeType   TypeURL = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	ExtensionType TypeURL = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
	// LbEndpointType (LEDS) has no service of its own, and no row in the table.
	LbEndpointType TypeURL = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint"
)

// HealthReportType is the type by which istio-agent reports the health of its machine. Its requests
// are reports and never subscriptions (P3).
const HealthReportType TypeURL = "type.googleapis.com/istio.v1.HealthInformation"

// Type is a row of the type table. It says how the type differs from others. Code reads the row
// instead of switching on the URL.
type Type struct {
	URL   TypeURL
	Short string // for example "CDS"; empty for a type outside the table
	// FullState: a SotW response holds all resources of the type. A resource that it leaves out is
	// deleted (P65).
	FullState bool
	// NoLegacyWildcard: an empty first list of names subscribes to nothing (P21). Without it, an
	// empty first list subscribes to the wildcard.
	NoLegacyWildcard bool
	// AlwaysResend: a resource is sent after a reconnect even if initial_resource_versions has its
	// version (P27).
	AlwaysResend bool
	// Warms: a client withholds the ACK while it warms the resources. An unacknowledged response
	// does not block the next one when a later type has a change pending (P19). The types that warm
	// have Order 0 and 1, because fanout keeps an array of that size for them.
	Warms bool
	// DelayRemovals: the group delays deletions of the type by removal_delay (P36).
	DelayRemovals bool
	// RefersToClusters: resources of the type refer to clusters. While a client subscribes to such
	// a type, deletions of DelayRemovals types are delayed (P36).
	RefersToClusters bool
	// Follower is the type whose resource is sent after each new or changed resource of this type.
	// Resource.Follows has its name (P37).
	Follower TypeURL
	// Leased: a resource with a lease is sent to clients each time the origin sends it, because that
	// renews the lease (P33). Resource.Leased says whether it has one.
	Leased bool
	// ResendEqual: a resource that a delta origin sends under a new version is sent to clients even if
	// it is equal, because its subscriber in the client may be new (P33).
	ResendEqual bool
	// SubscribedByAlias: clients usually subscribe by alias (P26). The names in
	// initial_resource_versions are then not the names that they subscribe to (P27).
	SubscribedByAlias bool
	// Order is the order of sending on an aggregated stream, lowest first (P35).
	Order uint8
	// Secret: only clients with a proven identity receive the type (P6).
	Secret bool
	// Service is the gRPC service for this type alone. SotW and Delta are its methods (P4); SotW is
	// empty if it has none.
	Service, SotW, Delta string
	// REST is the HTTP path for polling this type as JSON (P70); empty if there is none.
	REST string
}

// otherOrder is the Order of the types that P35 does not name.
const otherOrder = 6

var typeTable = []Type{
	{URL: ClusterType, Short: "CDS", FullState: true, Warms: true, DelayRemovals: true, Follower: EndpointType, Order: 0,
		Service: "envoy.service.cluster.v3.ClusterDiscoveryService", SotW: "StreamClusters", Delta: "DeltaClusters",
		REST: "/v3/discovery:clusters"},
	{URL: EndpointType, Short: "EDS", NoLegacyWildcard: true, AlwaysResend: true, Warms: true, DelayRemovals: true, Leased: true, Order: 1,
		Service: "envoy.service.endpoint.v3.EndpointDiscoveryService", SotW: "StreamEndpoints", Delta: "DeltaEndpoints",
		REST: "/v3/discovery:endpoints"},
	{URL: ListenerType, Short: "LDS", FullState: true, RefersToClusters: true, Order: 2,
		Service: "envoy.service.listener.v3.ListenerDiscoveryService", SotW: "StreamListeners", Delta: "DeltaListeners",
		REST: "/v3/discovery:listeners"},
	{URL: ScopedType, Short: "SRDS", FullState: true, RefersToClusters: true, Order: 3,
		Service: "envoy.service.route.v3.ScopedRoutesDiscoveryService", SotW: "StreamScopedRoutes", Delta: "DeltaScopedRoutes",
		REST: "/v3/discovery:scoped-routes"},
	{URL: RouteType, Short: "RDS", NoLegacyWildcard: true, RefersToClusters: true, Order: 4,
		Service: "envoy.service.route.v3.RouteDiscoveryService", SotW: "StreamRoutes", Delta: "DeltaRoutes",
		REST: "/v3/discovery:routes"},
	{URL: VHostType, Short: "VHDS", SubscribedByAlias: true, RefersToClusters: true, Order: 5,
		Service: "envoy.service.route.v3.VirtualHostDiscoveryService", Delta: "DeltaVirtualHosts"},
	{URL: SecretType, Short: "SDS", NoLegacyWildcard: true, ResendEqual: true, Secret: true, Order: otherOrder,
		Service: "envoy.service.secret.v3.SecretDiscoveryService", SotW: "StreamSecrets", Delta: "DeltaSecrets",
		REST: "/v3/discovery:secrets"},
	{URL: RuntimeType, Short: "RTDS", NoLegacyWildcard: true, Order: otherOrder,
		Service: "envoy.service.runtime.v3.RuntimeDiscoveryService", SotW: "StreamRuntime", Delta: "DeltaRuntime",
		REST: "/v3/discovery:runtime"},
	{URL: ExtensionType, Short: "ECDS", NoLegacyWildcard: true, ResendEqual: true, Order: otherOrder,
		Service: "envoy.service.extension.v3.ExtensionConfigDiscoveryService", SotW: "StreamExtensionConfigs", Delta: "DeltaExtensionConfigs",
		REST: "/v3/discovery:extension_configs"},
}

var byURL, byShort = func() (map[TypeURL]*Type, map[string]*Type) {
	u, s := make(map[TypeURL]*Type), make(map[string]*Type)
	for i := range typeTable {
		u[typeTable[i].URL], s[typeTable[i].Short] = &typeTable[i], &typeTable[i]
	}
	return u, s
}()

// Types returns the rows of the table in the order of sending. Callers must not change them.
func Types() []Type { return typeTable }

// TypeOf is a copy of RowOf.
func TypeOf(url TypeURL) Type { return *RowOf(url) }

// RowOf returns the row of url, and for a URL outside the table one with the general rules.
func RowOf(url TypeURL) *Type {
	if t, ok := byURL[url]; ok {
		return t
	}
	secret := isSecretMessage(url)
	return &Type{URL: url, Order: otherOrder, Secret: secret, ResendEqual: secret || url == LbEndpointType}
}

// Known reports whether the type is in the table. The relay knows where a resource of such a type
// has its name.
func (t Type) Known() bool { return t.Short != "" }

// isSecretMessage reports whether a type URL outside the table names the Secret message. The URL
// may have another prefix, which protobuf treats as equal, or name the v2 message. An origin may
// answer such a type, so P6 must cover it.
func isSecretMessage(url TypeURL) bool {
	message := url[strings.LastIndexByte(string(url), '/')+1:]
	return message == "envoy.extensions.transport_sockets.tls.v3.Secret" || message == "envoy.api.v2.auth.Secret"
}

// Label returns the type's name in metrics: its short name, or "other".
func (t Type) Label() string {
	if !t.Known() {
		return "other"
	}
	return t.Short
}

// ParseType parses a type as users write it: a short name in any case ("cds"), or a type URL, which
// it does not check. It returns false for anything else.
func ParseType(s string) (TypeURL, bool) {
	if t, ok := byShort[strings.ToUpper(s)]; ok {
		return t.URL, true
	}
	if strings.Contains(s, "/") {
		return TypeURL(s), true
	}
	return "", false
}
