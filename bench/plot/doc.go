// Package plot draws the figures of pages: SVG, with the colours of the page's classes.
package plot
