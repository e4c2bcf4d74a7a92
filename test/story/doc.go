// Package story runs tests that are told as text: requests over HTTP and what must
// come of them. Parse reads the stories of a file, Story.Run plays one.
//
// A story begins with its name, and a title that says what it shows:
//
//	== names-unique: Only one object of a kind can have a name at a time
//	# a comment says why
//	> POST /api/v1/namespaces/${ns}/configmaps      a request: method and path
//	> Content-Type: application/json                its headers
//	{"metadata":{"name":"a"}}                       its body; <<x*9>> is nine x
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
//	@watch W PATH              opens a watch
//	@event W TYPE FRAGMENTS    its next event, and what is in it
//	@skip-until W FRAGMENTS    reads on until an event has all of these
//	@end W                     the server ends the stream
//	@close W                   the client does
//	@not-yet WHY               the story fails today; when it does not any more, the
//	                           test fails until this line is gone
//
// Where a request goes is for the Send function of the one who runs the story.
package story
