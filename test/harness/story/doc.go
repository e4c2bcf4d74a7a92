// Package story runs tests that are told as text: requests over HTTP and what must
// come of them. Language.Stories and Language.Story read a file, Story.Run plays a story.
//
// A story is a list of lines. Nothing but the body of a request may be in other lines.
//
//	# a comment says why
//	> POST /api/v1/namespaces/${ns}/configmaps      a request: method and path
//	> Content-Type: application/json                its headers
//	{"metadata":{"name":"a"}}                       its body, up to the status
//	< 201                                           the status of the answer
//	< Warning: unknown field                        a header contains this
//	< !Retry-After                                  there is no such header
//	~ "name":"a"                                    the body contains this
//	! "status"                                      the body does not contain this
//	= {"kind":...}                                  the body is this
//	$rv "resourceVersion":"(\d+)"                   ${rv} is from now on the first group
//	>> GET /...                                     a request that is repeated until its
//	                                                answer is as expected, or Patience ends
//
// Every line but a comment may have variables: ${rv}. One that is not set is a mistake.
// In paths and bodies <<x*9>> is nine times x; x may be more than one character.
//
//	@watch W PATH              opens a watch
//	@event W TYPE FRAGMENTS    its next event, and what is in it
//	@skip-until W FRAGMENTS    reads on until an event has all of these
//	@end W                     the server ends the stream
//	@ended W                   reads on until the server ends the stream
//	@close W                   the client does
//	@until PATH FRAGMENTS      awaits that the answer to a GET has all of these
//	@gone PATH                 awaits that a GET answers 404
//
// A file of several stories (Language.Stories) has a line before each, with its name
// and what it shows:
//
//	== names-unique: Only one object of a kind can have a name at a time
//	@not-yet WHY               the story fails today; when it does not any more, the
//	                           test fails until this line is gone
//
// What only some stories can say, because it concerns the server they are told to, is
// added by a Language: directives and marks of its own. One with Record is that of
// test/system/golden: the answers are recorded in a file, and stories do not say them.
//
// Other texts of tests have another subject: operations without HTTP (apiserver/objects/objectstest),
// command lines and what they print (test/system/commands), the histories of clients
// (test/judges/history) and of a cluster's members (membership), and tables of one request and one
// answer a row (test/system/reads, test/system/hostile).
package story
