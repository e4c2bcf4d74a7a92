// Package definitions proves what a cluster does with CustomResourceDefinitions: when
// their resources are served, conversion webhooks, and what many definitions cost.
package definitions
