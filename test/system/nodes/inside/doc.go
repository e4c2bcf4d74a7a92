// Command inside is what runs in the containers of test/system/nodes: the pause container, a small HTTP
// server, and a client of the API with what a Pod finds mounted.
package main
