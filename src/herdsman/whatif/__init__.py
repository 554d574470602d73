"""Arrivals and run times replayed in virtual time through the real judgement: what would a policy have cost?"""
