// Package console is what administrators see in a browser, and the shop window of buyers. Its
// pages are made on the server (html/template). What they are made with beside it, Tabler's
// stylesheet and icons, htmx and uPlot, is in static/lib as it was copied from npm (make assets),
// and nothing is loaded from elsewhere. It decides nothing: it asks the services that the API
// asks, with the same checks, and shows their answers.
//
// What administrators do here, their log has. What they typed is not lost when their session
// ends before it is sent.
//
// Everything that a person reads is in two languages, see package words.
//
// What of the OWASP Application Security Verification Standard 4.0.3, level 1, is about
// sessions, CSRF, XSS and headers, and which test holds it:
//
//	2.2.1  guessing passwords is throttled, as at the API's login   TestSignInIsThrottled
//	3.1.1  no token is in a URL                                     TestSignIn
//	3.2.1  a login makes a new token                                TestSignIn
//	3.2.3  the token is in a cookie that scripts cannot read        TestSignIn
//	3.3.1  signing out ends the session on the server               TestSignOutEndsTheSessionEverywhere
//	3.4.1  the cookie is Secure behind TLS                          TestCookieBehindTLS
//	3.4.2  the cookie is HttpOnly                                   TestSignIn
//	3.4.3  the cookie is SameSite=Strict                            TestSignIn
//	3.4.4  its name has the prefix __Host- behind TLS               TestCookieBehindTLS
//	4.1.1  every page but the sign-in is for administrators         TestPagesAskToSignIn
//	4.2.2  another site's page can change nothing                   TestAnotherSiteIsRefused
//	5.1.5  the page after a sign-in is one of the console           TestSignInLeadsNowhereElse
//	5.3.3  what people typed stays text                             TestTextStaysText
//	7.4.1  an error shows no internals, and the request's id        TestAFailureShowsNoInternals
//	8.2.1  pages are not kept in caches                             TestHeaders
//	14.4.1 every answer tells its type and its encoding             TestHeaders
//	14.4.3 a Content-Security-Policy, with no inline script         TestHeaders
//	14.4.4 X-Content-Type-Options: nosniff                          TestHeaders
//	14.4.6 a Referrer-Policy                                        TestHeaders
//	14.4.7 no other site's page shows the console in a frame        TestHeaders
//
// 14.4.5 (Strict-Transport-Security) is left to the proxy that has the certificate: it
// speaks for the host, and the console is one path of it.
package console
