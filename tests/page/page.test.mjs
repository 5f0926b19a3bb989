// The page as a person uses it, in headless Chromium.  One process, server and browser for all of it; by kind in the files
// imported here.
import './talking.mjs';
import './forming.mjs';
import './hostile.mjs';
import './keeping.mjs';
import './documents.mjs';
import './tools.mjs';
import './looking.mjs';
import './choosing.mjs';
