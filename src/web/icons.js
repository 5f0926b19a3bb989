// icons.js - what the icons of this build look like, from Debian's bootstrap-icons (embed.py): name: [element, attributes] of
// each part, in a square of 16 units.  Empty: this build has none, and buttons show words.
export const drawings = {};
