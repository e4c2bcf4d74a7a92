// Package definitions receives what openapi-gen writes. The file is an
// intermediate product: generate.sh makes it, schemagen prints it as JSON, and
// git ignores it.
package definitions
