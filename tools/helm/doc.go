// Package helm checks the chart in deploy/helm with helm, with the types of the Kubernetes API, and with
// the relay itself. It is a module of its own, so that the relay does not depend on these.
package helm
