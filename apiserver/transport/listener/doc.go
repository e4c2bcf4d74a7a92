// Package listener is the API's listener. It decides which connection makes room for another one,
// and in which order TLS handshakes are done, so that nobody who can merely reach the port keeps
// others out. Large answers are written in turns here too, so that many readers of them do not keep
// the processors from others, and from Raft.
//
// Types to know: [Listener] (the bounds, and who makes room), which guards an http.Server;
// and the Authenticator of [Greet], from which it learns whose a connection is.
//
// What a request may do and how many run at once is package apiserver's. Here it is connections,
// before anything was authenticated, and answers that nobody takes, when their handlers have ended.
package listener
