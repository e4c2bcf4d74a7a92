// Golden compares Quorate with a real kube-apiserver: the same requests go to both. What
// kube-apiserver and etcd answered is recorded in files, which the tests of this package hold
// against Quorate's answers, so that only those who record need a kube-apiserver.
//
//	make golden                                             records every story again
//	go run ./test/system/golden -record test/system/golden/testdata/NAME.txt
//	go test -run TestGolden/NAME ./test/system/golden
//
// A story is told in the language of test/harness/story, but it only says what is sent: what must
// come of it is recorded. It lies in testdata/NAME.txt, the answers in NAME.golden beside it, and
// the differences that are meant in NAME.differences.txt, if there are any.
//
// A story has a server of its own, on both sides. It begins with what concerns the server:
//
//	@not-yet WHY               Quorate does not answer so today; when it does, the test
//	                           fails until this line is gone
//	@plugins NAME...           the admission plugins that the story tells of, if any: a test
//	                           of package plugins wants a story of each
//	@flag --NAME=VALUE         a flag of both servers; it may have the variables of files
//	@file NAME                 a file for a flag, in the lines that follow: ${NAME} is its path;
//	                           it may have variables
//	@webhook NAME              a webhook of admission, or of conversion: how it answers, as
//	                           YAML (webhookSpec, conversionSpec)
//
// Then come requests. One below a heading is recorded. One without a heading prepares what
// others need, and must succeed. A body is YAML, sent as JSON, and ends at an empty line or
// at the next line that begins with a mark. Quote the words that YAML takes for booleans,
// such as no, on and n. If its Content-Type has a parameter, as application/json;
// charset=utf-8 has, it is sent as it is written. The user who asks is an administrator,
// unless Impersonate-User says another. Otherwise than in other stories,
//
//	== NAME: TITLE             is the heading of a request: what it shows
//	>> POST /api/...?dryRun=All   is sent to Quorate once: there, a rule holds when it is written.
//	                           kube-apiserver learns of rules late. Only such a request says
//	                           what is expected of its answer.
//	@controller METHOD PATH    is a request to kube-apiserver alone: what Quorate's controllers do
//	                           by themselves, and kube-controller-manager would do there
//
// Variables that are always there: ${webhook}, the URL below which webhooks answer,
// ${ca}, the caBundle for it, and ${dead}, a URL at which nothing listens.
//
// Beside kube-apiserver there is no kube-controller-manager. The recorder makes the service
// account "default" of each namespace, and nothing else.
//
// What differs from run to run is replaced before it is recorded or compared (normalize.go).
package main
