// An address that leads nowhere, or to what the token does not show.

import { h } from "../dom.js";
import { heading } from "../parts.js";
import { can, who } from "../session.js";

export default function missing({ id, closed }) {
  const title = closed ? "This page is not for your role" : "There is no such page";
  const why = closed ? `A token with the role ${who().role} does not see it.` : `Nothing is at #/${id}.`;
  const home = can("look") ? ["#/", "Go to the overview"] : ["#/jobs", "Go to the jobs"];
  return {
    title: closed ? "Not for your role" : "Not found",
    view: () => [heading(title), h("p", { key: "said" }, `${why} `, h("a", { href: home[0] }, home[1]))],
  };
}
