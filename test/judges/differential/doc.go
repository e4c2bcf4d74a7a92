// Package differential sends the same requests to a real kube-apiserver and to Quorate, and
// compares what they answer: status, reason, causes, message, warnings, and the object that would
// be stored. A mutating and a validating webhook of each see every write, and the reviews that they
// are sent are compared whole (reviews_test.go).
//
// The objects are those of others: the test data of k8s.io/api, which has every field of every
// kind, and the manifests of k8s.io/kubernetes. Both come out of the module cache. A seed and an
// index make a request (request_test.go): a create, an update, a patch, an apply, or one of these
// of a subresource, of an object that is left as it is or mutated (mutate_test.go): a quarter of the
// changes make a value, at any depth, absent, null, empty or zero. All are dry
// runs, so the answer to one does not depend on those before.
//
//	make judge-differential                       3 x 10,000 requests (REQUESTS, JUDGE_SEEDS)
//	go test ./test/judges/differential -run 'TestCampaign$' -campaign -one 1:4711 -v
//
// The second prints one request and both answers.
//
// That is the pool "manifests". The pool "installed" (-pool installed) has objects of what people
// install in clusters, with the definitions that they need (testdata/installed.txt), and writes of
// subresources whose body is another kind than the object: /scale, evictions, bindings, requests for
// tokens (subresources_test.go). Its charts are rendered by bin/helm (make bin/helm, or HELM). A seed
// and an index make other requests in each pool.
//
// A difference is a set of lines (compare_test.go), and known.txt has those that are meant, each
// with its reason:
//
//	SIGN KIND VERB WHAT DETAIL   # REASON
//
// where - is kube-apiserver's and + is Quorate's, WHAT is one of accepted, code, broken, silent,
// object, cause, message, refusal, warning and review, a word that ends with * stands for all that begin
// so, and the last word need not be complete. DETAIL is as reports print it.
//
// TestRecorded is the campaign in small, for those without a kube-apiserver: it holds Quorate's
// answers against recorded ones. After a change of what makes requests, record again:
//
//	go test ./test/judges/differential -run 'TestCampaign$' -campaign -record 2000
//	go test ./test/judges/differential -run 'TestCampaign$' -campaign -pool installed -record 1000
//
// testdata/open.txt and installed-open.txt list those of them whose answers differ and should not,
// yet: the test fails when there is another one, and when one has gone.
package differential
